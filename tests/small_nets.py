"""A network of a few hundred weights and images that it can learn in seconds: what hardening is tested with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import brinell
from conftest import PLAIN

CLASSES = ("red", "green", "blue")
SIDE = 16


class Small(nn.Module):
    """Two blocks with batch norms, dropout and a head."""

    def __init__(self, outputs: int = 3) -> None:
        super().__init__()
        self.features = nn.Sequential(_block(3, 8), _block(8, 8))
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(8, outputs)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(self.drop(self.features(images).mean((2, 3))))
        return scores


def _block(inside: int, outside: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inside, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU())


def small(outputs: int = 3) -> Small:
    """The same weights every time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Small(outputs).eval()


def learned() -> Small:
    """The same after some steps on the pictures, which it gets right then."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = Small().train()
        images, labels = zip(*blots(), strict=True)
        pixels = (torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2) / 255 - 0.5) / 0.25
        optimiser = torch.optim.Adam(net.parameters(), 0.02)
        for _ in range(25):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(pixels), torch.tensor(labels)).backward()
            optimiser.step()
    return net.eval()


def wrapped(name: str = "small", **options: Any) -> brinell.Model:
    return brinell.wrap(
        small(), size=SIDE, mean=(0.5,), std=(0.25,), classes=CLASSES, name=name, execution=PLAIN, **options
    )


def blots(count: int = 60, seed: int = 0) -> list[tuple[np.ndarray, int]]:
    """Noisy pictures, each a little more red, green or blue."""
    generator = np.random.default_rng(seed)
    made = []
    for number in range(count):
        pixels = generator.normal(120, 30, (SIDE, SIDE, 3))
        pixels[..., number % 3] += 30
        made.append((np.clip(pixels, 0, 255).astype(np.uint8), number % 3))
    return made


def write_npz(path: Path, pictures: list[tuple[np.ndarray, int]]) -> Path:
    np.savez(path, images=np.stack([image for image, _ in pictures]), labels=np.array([label for _, label in pictures]))
    return path
