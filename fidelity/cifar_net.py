"""The small AlexNet for CIFAR-10 that the paper trains (Zhang et al. 2016), and its variants; training from a seed.

Two rounds of convolution, pooling and normalisation, then two full layers. `pool` makes all strides 1 and gives the second
pooling a size of its own; `scales` feeds two scales at once, the whole image at 20×20 and its middle 20×20.
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
BRIGHTER, CONTRASTS = 63.0, (0.2, 1.8)  # of the paper's distortions
BATCH = 128


@dataclass(frozen=True)
class Recipe:
    """A network and how it is trained. `crops` are the sides of the windows that it is trained on."""

    crops: tuple[int, ...] = (28,)
    dropout: bool = False
    weight_decay: bool = False
    distortion: bool = False
    pool: int | None = None
    scales: bool = False

    @property
    def plain(self) -> bool:
        """Whether nothing is done against overfitting."""
        return not (self.dropout or self.weight_decay or self.distortion)


class SmallAlexNet(nn.Module):
    """Takes standardised images (N, 3, 32, 32) and gives scores (N, 10).

    With a `width` below 1 convolutions have fewer channels than the paper's.
    """

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
        """Scores of images."""
        if self.recipe.scales:
            edge = (SIDE - SCALE) // 2
            whole = F.interpolate(images, (SCALE, SCALE), mode="bilinear", antialias=True)
            images = torch.cat([whole, images[..., edge : edge + SCALE, edge : edge + SCALE]], 1)
        maps = _normalised(self._pooled(F.relu(self.first(images)), first=True))
        maps = _normalised(self._pooled(F.relu(self.second(maps)), first=False))
        values = maps.flatten(1)
        for layer in self.full[:-1]:
            values = self._dropped(F.relu(layer(values)))
        scores: Tensor = self.full[-1](values)
        return scores

    def _pooled(self, maps: Tensor, *, first: bool) -> Tensor:
        if self.recipe.pool is None:
            return F.max_pool2d(maps, 3, 2, 1)
        if first:
            return F.max_pool2d(maps, 3, 1, 1)
        return F.max_pool2d(F.max_pool2d(maps, (self.recipe.pool, 1), 1), (1, self.recipe.pool), 1)  # rows, then columns

    def _dropped(self, values: Tensor) -> Tensor:
        if not (self.training and self.recipe.dropout):
            return values
        kept = torch.empty(values.shape).bernoulli_(0.5, generator=self.generator)
        return values * kept.to(values.device) * 2


def _normalised(maps: Tensor) -> Tensor:
    """Divided by the strength of nine channels around: torch's local_response_norm, as a convolution, which is faster."""
    channels = torch.arange(maps.shape[1], device=maps.device)
    near = ((channels[:, None] - channels).abs() <= 4).to(maps.dtype)[..., None, None]
    return maps * (1 + 0.001 / 9 * F.conv2d(maps.square(), near)) ** -0.75


def standardised(images: Tensor) -> Tensor:
    """Each image with mean 0 and deviation 1, as TensorFlow does it."""
    values = images.to(torch.float32).flatten(1)
    least = 1 / math.sqrt(values.shape[1])
    spread = values.std(1, correction=0, keepdim=True).clamp(min=least)
    return ((values - values.mean(1, keepdim=True)) / spread).view(images.shape)


def train(
    recipe: Recipe,
    images: Tensor,
    labels: Tensor,
    *,
    epochs: int,
    width: float,
    device: torch.device,
    tell: Callable[[str], None],
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
            batch = _augmented(images[rows], recipe, generator)
            loss = F.cross_entropy(net(batch), labels[rows])
            loss = loss + 0.001 * sum((weight.square().sum() / 2 for weight in decayed), torch.zeros((), device=device))
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 5.0)
            optimiser.step()
            total += loss.detach() * len(rows)
        tell(f"epoch {epoch + 1} of {epochs}: loss {float(total) / len(images):.3f}")
    return net.eval()


def _augmented(images: Tensor, recipe: Recipe, generator: torch.Generator) -> Tensor:
    """A random window of each image, of one of the recipe's sides (the same for a batch), resized (bilinear), distorted."""
    drawn = torch.empty(6, len(images)).uniform_(generator=generator)  # on the host: the same on any device
    side = recipe.crops[int(drawn[0, 0] * len(recipe.crops))]
    draws = drawn.to(images.device)
    tops, lefts = (draws[1:3] * (SIDE - side + 1)).to(torch.int64)
    places, every = (torch.arange(count, device=images.device) for count in (side, len(images)))
    rows, columns = (tops[:, None] + places)[:, None, :, None], (lefts[:, None] + places)[:, None, None, :]
    cut = images[every[:, None, None, None], torch.arange(3, device=images.device)[:, None, None], rows, columns]
    made = F.interpolate(cut.to(torch.float32), (SIDE, SIDE), mode="bilinear")
    if recipe.distortion:
        made = torch.where((draws[3] < 0.5)[:, None, None, None], made.flip(3), made)
        made = made + ((2 * draws[4] - 1) * BRIGHTER)[:, None, None, None]
        low, high = CONTRASTS
        middle = made.mean((2, 3), keepdim=True)
        made = (made - middle) * (low + draws[5] * (high - low))[:, None, None, None] + middle
    return standardised(made)
