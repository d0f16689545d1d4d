"""A segmenter of a few hundred weights, and pictures of shapes with masks that it learns in seconds."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

import brinell
from brinell.config.execution import Execution
from conftest import PLAIN

CLASSES = ("background", "disc", "square")
SIDE = 32
COLOURS = np.array([[60, 70, 60], [200, 60, 50], [50, 80, 210]])


class Shapes(nn.Module):
    """Scores of the classes of pixels, at half the size of the image."""

    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.features = nn.Sequential(_block(3, 12, 2), _block(12, 12, 1))
        self.head = nn.Conv2d(12, classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(self.features(images))
        return scores


def _block(inside: int, outside: int, stride: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(inside, outside, 3, stride, 1), nn.BatchNorm2d(outside), nn.ReLU())


def pictures(count: int = 8, side: int = SIDE) -> tuple[np.ndarray, np.ndarray]:
    """Noisy pictures (N, H, W, 3) of a disc and a square on dark ground, and their masks (N, H, W)."""
    draw = np.random.default_rng(7)
    rows, columns = np.mgrid[:side, :side]
    masks = np.zeros((count, side, side), np.uint8)
    for mask in masks:
        (x, y, u, v), radius = draw.integers(side // 4, side - side // 4, 4), draw.integers(side // 7, side // 4)
        mask[(columns - x) ** 2 + (rows - y) ** 2 <= radius**2] = 1
        mask[(abs(columns - u) <= radius) & (abs(rows - v) <= radius)] = 2
    noise = draw.normal(0, 12, (*masks.shape, 3))
    return np.clip(COLOURS[masks] + noise, 0, 255).astype(np.uint8), masks


@cache
def learned() -> Shapes:
    """A segmenter that gets the pictures right; the same weights every time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = Shapes().train()
        images, masks = (torch.from_numpy(each) for each in pictures(12))
        pixels = images.permute(0, 3, 1, 2) / 255
        optimiser = torch.optim.Adam(net.parameters(), 0.03)
        for _ in range(30):
            optimiser.zero_grad()
            scores = nn.functional.interpolate(net(pixels), pixels.shape[2:], mode="bilinear")
            nn.functional.cross_entropy(scores, masks.long()).backward()
            optimiser.step()
    return net.eval()


def segmenter(name: str = "shapes", execution: Execution = PLAIN, **options: Any) -> brinell.Model:
    """The learned segmenter as a model."""
    given = {"size": SIDE, "classes": CLASSES, **options}
    return brinell.wrap(learned(), name=name, segmentation=True, interpolation="bilinear", execution=execution, **given)


def folder(root: Path, count: int = 8, side: int = SIDE) -> Path:
    """Write a folder of images and masks."""
    for name in ("images", "masks"):
        (root / name).mkdir(parents=True)
    for number, (image, mask) in enumerate(zip(*pictures(count, side), strict=True)):
        Image.fromarray(image).save(root / "images" / f"{number}.png")
        Image.fromarray(mask).save(root / "masks" / f"{number}.png")
    (root / "classes.txt").write_text("\n".join(CLASSES))
    return root
