"""A dataset: bright bars on the left or on the right of dark images."""

from __future__ import annotations

from pathlib import Path

import torch

from brinell.config.data import DataOptions
from brinell.types import Sample


class Bars:
    """A few images of 32 by 32 pixels with a bright bar on one side."""

    name = "bars"
    classes = ("left", "right")

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int, /) -> Sample:
        image = torch.full((3, 32, 32), 20 + index, dtype=torch.uint8)
        side = index % 2
        image[:, :, 20 * side + 2 : 20 * side + 10] = 200
        return Sample(image, side, f"bar-{index}")


def open_bars(path: Path, options: DataOptions) -> Bars:
    """Open `bars:COUNT`."""
    return Bars(int(str(path)))
