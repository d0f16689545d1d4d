"""The small AlexNet for CIFAR-10 of the paper (fragile recognition, ICLR 2019; after Zhang et al. 2016), and its training.

Twice convolution, pooling and normalisation, then two dense layers. `pool` sets all strides to 1 and gives the size of the
second pooling; `scales` feeds two scales at once, the whole image at 20×20 and its central 20×20 pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from brinell.draws import permutation

SIDE, SCALE = 32, 20
MOMENTUM, RATE, DECAY_OF_RATE = 0.9, 0.01, 0.95
BRIGHTER, CONTRASTS = 63.0, (0.2, 1.8)  # the paper's distortions
BATCH = 128


@dataclass(frozen=True)
class Recipe:
    """A network and its training. `crops` are the sides of the training crops."""

    crops: tuple[int, ...] = (28,)
    dropout: bool = False
    weight_decay: bool = False
    distortion: bool = False
    pool: int | None = None
    scales: bool = False

    @property
    def plain(self) -> bool:
        """Whether there is no regulariser."""
        return not (self.dropout or self.weight_decay or self.distortion)


class SmallAlexNet(nn.Module):
    """Maps standardised images (N, 3, 32, 32) to scores (N, 10). A `width` below 1 reduces the channels of convolutions."""

    def __init__(self, recipe: Recipe, width: float, generator: torch.Generator) -> None:
        super().__init__()
        self.recipe, self.generator = recipe, generator
        first, second = (max(8, round(count * width)) for count in (96, 256))
        third, fourth = 384, 192
        self.first = nn.Conv2d(6 if recipe.scales else 3, first, 5, padding=2)
        self.second = nn.Conv2d(first, second, 5, padding=2)
        side = SCALE if recipe.scales else SIDE
        pooled = side - recipe.pool + 1 if recipe.pool else math.ceil(math.ceil(side / 2) / 2)
        self.full = nn.ModuleList([nn.Linear(second * pooled**2, third), nn.Linear(third, fourth), nn.Linear(fourth, 10)])
        for layer in (self.first, self.second, *self.full):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu", generator=generator)  # type: ignore[arg-type]
            nn.init.zeros_(layer.bias)  # type: ignore[arg-type]

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores of images."""
        if self.recipe.scales:
            edge = (SIDE - SCALE) // 2
            whole = F.interpolate(images, (SCALE, SCALE), mode="bilinear", antialias=True)
            images = torch.cat([whole, images[..., edge : edge + SCALE, edge : edge + SCALE]], 1)
        maps = _normalise(self._pool(F.relu(self.first(images)), first=True))
        maps = _normalise(self._pool(F.relu(self.second(maps)), first=False))
        values = maps.flatten(1)
        for layer in self.full[:-1]:
            values = self._drop(F.relu(layer(values)))
        scores: Tensor = self.full[-1](values)
        return scores

    def _pool(self, maps: Tensor, *, first: bool) -> Tensor:
        if self.recipe.pool is None:
            return F.max_pool2d(maps, 3, 2, 1)
        if first:
            return F.max_pool2d(maps, 3, 1, 1)
        return F.max_pool2d(F.max_pool2d(maps, (self.recipe.pool, 1), 1), (1, self.recipe.pool), 1)  # rows, then columns

    def _drop(self, values: Tensor) -> Tensor:
        if not (self.training and self.recipe.dropout):
            return values
        kept = torch.empty(values.shape).bernoulli_(0.5, generator=self.generator)
        return values * kept.to(values.device) * 2


def _normalise(maps: Tensor) -> Tensor:
    """Apply torch's local_response_norm over nine channels, as a convolution, which is faster."""
    channels = torch.arange(maps.shape[1], device=maps.device)
    near = ((channels[:, None] - channels).abs() <= 4).to(maps.dtype)[..., None, None]
    return maps * (1 + 0.001 / 9 * F.conv2d(maps.square(), near)) ** -0.75


def standardise(images: Tensor) -> Tensor:
    """Return images with mean 0 and standard deviation 1 each, as TensorFlow computes them."""
    values = images.to(torch.float32).flatten(1)
    smallest = 1 / math.sqrt(values.shape[1])
    spread = values.std(1, correction=0, keepdim=True).clamp(min=smallest)
    return ((values - values.mean(1, keepdim=True)) / spread).view(images.shape)


def train(
    recipe: Recipe,
    images: Tensor,
    labels: Tensor,
    *,
    epochs: int,
    width: float,
    device: torch.device,
    report: Callable[[str], None],
) -> SmallAlexNet:
    """Train a network on uint8 images (N, 3, 32, 32)."""
    generator = torch.Generator().manual_seed(len(recipe.crops) + (recipe.pool or 0))
    net = SmallAlexNet(recipe, width, generator).to(device).train()
    decayed = [layer.weight for layer in net.full] if recipe.weight_decay else []
    optimiser = torch.optim.SGD(net.parameters(), lr=RATE, momentum=MOMENTUM)
    images, labels = images.to(device), labels.to(device)
    for epoch in range(epochs):
        for group in optimiser.param_groups:
            group["lr"] = RATE * DECAY_OF_RATE**epoch
        total = torch.zeros((), device=device)
        for rows in torch.tensor(permutation(len(images), epoch), device=device).split(BATCH):
            batch = _augment(images[rows], recipe, generator)
            loss = F.cross_entropy(net(batch), labels[rows])
            loss = loss + 0.001 * sum((weight.square().sum() / 2 for weight in decayed), torch.zeros((), device=device))
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            optimiser.step()
            total += loss.detach() * len(rows)
        report(f"epoch {epoch + 1} of {epochs}: loss {float(total) / len(images):.3f}")
    return net.eval()


def _augment(images: Tensor, recipe: Recipe, generator: torch.Generator) -> Tensor:
    """Crop a random window of each image, of one of the recipe's sides (one per batch), resize and distort it."""
    drawn = torch.empty(6, len(images)).uniform_(generator=generator)  # on the host: the same on any device
    side = recipe.crops[int(drawn[0, 0] * len(recipe.crops))]
    draws = drawn.to(images.device)
    tops, lefts = (draws[1:3] * (SIDE - side + 1)).to(torch.int64)
    offsets, every = (torch.arange(count, device=images.device) for count in (side, len(images)))
    rows, columns = (tops[:, None] + offsets)[:, None, :, None], (lefts[:, None] + offsets)[:, None, None, :]
    cut = images[every[:, None, None, None], torch.arange(3, device=images.device)[:, None, None], rows, columns]
    made = F.interpolate(cut.to(torch.float32), (SIDE, SIDE), mode="bilinear")
    if recipe.distortion:
        made = torch.where((draws[3] < 0.5)[:, None, None, None], made.flip(3), made)
        made = made + ((2 * draws[4] - 1) * BRIGHTER)[:, None, None, None]
        low, high = CONTRASTS
        middle = made.mean((2, 3), keepdim=True)
        made = (made - middle) * (low + draws[5] * (high - low))[:, None, None, None] + middle
    return standardise(made)
