"""More photographs than the demo has: its own, mirrored and upside down."""

from __future__ import annotations

from pathlib import Path

from PIL import Image
from torch import Tensor

import brinell

TURNS: tuple[tuple[int, ...], ...] = ((), (2,), (1,), (1, 2))  # axes to flip


def photographs(count: int) -> list[Tensor]:
    """Return so many different photographs, uint8 (3, H, W)."""
    demo = brinell.open_dataset("demo-photos")
    turned = [demo[index].image.expand(3, -1, -1).flip(axes) for axes in TURNS for index in range(len(demo))]
    if count > len(turned):
        raise ValueError(f"there are {len(turned)} photographs, not {count}")
    return turned[:count]


def write_photographs(folder: Path, count: int) -> None:
    """Write photographs to a folder."""
    for index, image in enumerate(photographs(count)):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(folder / f"{index:03d}.png")
