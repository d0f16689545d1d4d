"""The baseline of the ManiFool paper (CVPR 2018): two 5x5 convolutions with 32 and 64 maps, ReLU and pooling, on MNIST."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from brinell.config.execution import Execution
from brinell.draws import permutation
from brinell.models.model import Description, Model
from brinell.models.modules import from_module
from brinell.models.preprocess import Preprocess

EPOCHS = 2


def network(seed: int) -> nn.Module:
    """Return the network (28-28-14-10-5-1): the second convolution has no padding, a third one replaces a dense layer."""
    layers = nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(64, 10, 5),
        nn.Flatten(),
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in layers:
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_uniform_(layer.weight, a=5**0.5, generator=generator)
                bound = layer.weight[0].numel() ** -0.5
                nn.init.uniform_(layer.bias, -bound, bound, generator=generator)
    return layers


def digits(assets: Path, part: str) -> tuple[Tensor, Tensor]:
    """Return the uint8 images (N, 1, 28, 28) and labels of MNIST."""
    with np.load(assets / "images" / f"mnist_{part}.npz") as content:
        return torch.from_numpy(content["images"]).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(content["labels"])


def train(assets: Path, seed: int, folder: Path, epochs: int = EPOCHS) -> nn.Module:
    """Return the network after training with Adam (learning rate 1e-3, batch size 128); it is stored in the folder."""
    file = folder / f"digits-{seed}-{epochs}.pt"
    module = network(seed)
    if file.exists():
        module.load_state_dict(torch.load(file, weights_only=True))
        return module.eval()
    images, labels = digits(assets, "train")
    optimiser = torch.optim.Adam(module.parameters(), lr=1e-3)
    for epoch in range(epochs):
        for rows in torch.tensor(permutation(len(images), 1000 * seed + epoch)).split(128):
            loss = nn.functional.cross_entropy(module(images[rows].float() / 255), labels[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(module.state_dict(), file)
    return module.eval()


def as_model(module: nn.Module, name: str, **preprocess: tuple[float, ...]) -> Model:
    """Return a digit network as a model, with the mean and std of its input."""
    own = Preprocess(28, 28, 1, **preprocess)  # type: ignore[arg-type]
    return from_module(module, Description(name, "trained here", own), Execution(device="cpu"))
