"""Square windows of an image: how large they are, where they begin, and which of them are looked at.

A window begins at its left and top pixel. There are (H - S + 1) x (W - S + 1) of side S.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.lenses.fragility.options import SHRINK

NEARLY = 1e-9  # so that 0.29 of 200 pixels is 58 and not 57.999…


def window_side(size: float, height: int, width: int) -> int:
    """The side of a window: a share P of the image's shorter side, made odd, 2 floor(P side / 2) + 1; or pixels, above 1.

    Where an odd side would be a pixel too many, it is two less.
    """
    if size > 1:
        return int(size)
    shorter = min(height, width)
    side = 2 * math.floor(size * shorter / 2 + NEARLY) + 1
    return side if side <= shorter else side - SHRINK


def called(size: float) -> str:
    """A size as names and options have it: 0.2, or 75px."""
    return f"{size:g}px" if size > 1 else f"{size:g}"


@dataclass(frozen=True)
class Grid:
    """Windows of one side, where each of `tops` meets each of `lefts` (int64, rising)."""

    side: int
    tops: Tensor
    lefts: Tensor

    def __len__(self) -> int:
        return len(self.tops) * len(self.lefts)

    @property
    def shape(self) -> tuple[int, int]:
        """Of a map of these windows."""
        return len(self.tops), len(self.lefts)

    def corners(self) -> Tensor:
        """Left and top of every window, int64 (windows, 2): down the columns, since those of a column are made together."""
        left, top = torch.meshgrid(self.lefts, self.tops, indexing="ij")
        return torch.stack([left.flatten(), top.flatten()], 1)

    def as_map(self, values: Tensor) -> Tensor:
        """Values of the windows in the order of `corners` as a map (tops, lefts)."""
        return values.view(len(self.lefts), len(self.tops)).T


@dataclass(frozen=True)
class Neighbourhood:
    """Windows that are judged, those that they are compared with after a shift, and those after a shrink.

    With a stride above 1 one window in stride² is judged, and still by windows that are one pixel away.
    """

    judged: Grid
    shifted: Grid  # holds the judged ones, too
    shrunk: Grid

    @staticmethod
    def of(side: int, height: int, width: int, stride: int = 1) -> Neighbourhood:
        """All windows of a side in a height and width."""
        down, across = height - side + 1, width - side + 1
        tops, lefts = torch.arange(0, down, stride), torch.arange(0, across, stride)
        beside, within = (-1, 0, 1), tuple(range(SHRINK + 1))
        return Neighbourhood(
            judged=Grid(side, tops, lefts),
            shifted=Grid(side, _near(tops, beside, down), _near(lefts, beside, across)),
            shrunk=Grid(side - SHRINK, _near(tops, within, down + SHRINK), _near(lefts, within, across + SHRINK)),
        )

    def __len__(self) -> int:
        return len(self.shifted) + len(self.shrunk)


def _near(places: Tensor, offsets: tuple[int, ...], count: int) -> Tensor:
    """Places with those that lie at some offsets from them, in 0..count."""
    every: Tensor = torch.unique(places[:, None] + torch.tensor(offsets))
    return every[(every >= 0) & (every < count)]


def opposite_windows(failing: Tensor, right: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the windows (left, top, side) on the other side of the `right` ones, shifted or shrunk as much as the
    `failing` ones, float64 (T, 3), and which of them lie in originals of these heights and widths, (T, 2).
    """
    shrunk = right[:, 2:] - failing[:, 2:]
    windows = torch.cat([2 * right[:, :2] + shrunk - failing[:, :2], failing[:, 2:]], 1)
    corners, side = windows[:, :2], windows[:, 2:]
    return windows, ((corners >= 0) & (corners + side <= sizes.flip(1))).all(1)
