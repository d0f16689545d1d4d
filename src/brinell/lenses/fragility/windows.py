"""Square windows of an image: their side, their positions, and the windows that each one is compared with.

A window's position is its left and top pixel. An image of H × W pixels has (H - S + 1) × (W - S + 1) windows of side S.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brinell.lenses.fragility.names import SHRINK

Array = NDArray[Any]
Integers = NDArray[np.int64]
Mask = NDArray[np.bool_]
EPSILON = 1e-9  # makes 0.29 of 200 pixels 58 rather than 57.999…


def window_side(size: float, height: int, width: int) -> int:
    """Return a window's side in pixels, from a share P of the image's shorter side or, above 1, from a number of pixels.

    Shares give odd sides, 2 floor(P side / 2) + 1; where that is a pixel too many, the side is two pixels smaller.
    """
    if size > 1:
        return int(size)
    shorter = min(height, width)
    side = 2 * math.floor(size * shorter / 2 + EPSILON) + 1
    return side if side <= shorter else side - SHRINK


def stride_pixels(stride: float, height: int, width: int) -> int:
    """Return a stride in pixels, from pixels or, below 1, from a share of the image's shorter side."""
    return int(stride) if stride >= 1 else max(1, round(stride * min(height, width)))


def format_size(size: float) -> str:
    """Return a size as operator ids write it: 0.2, or 75px."""
    return f"{size:g}px" if size > 1 else f"{size:g}"


@dataclass(frozen=True)
class WindowGrid:
    """Windows of one side at every combination of `tops` and `lefts` (increasing int64)."""

    side: int
    tops: Integers
    lefts: Integers

    def __len__(self) -> int:
        return len(self.tops) * len(self.lefts)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of a map over the grid: (tops, lefts)."""
        return len(self.tops), len(self.lefts)

    def corners(self) -> Integers:
        """Return left and top of every window, int64 (windows, 2), column by column: a column is resized together."""
        left, top = np.meshgrid(self.lefts, self.tops, indexing="ij")
        return np.stack([left.ravel(), top.ravel()], 1)

    def to_map(self, values: Array) -> Array:
        """Return values in the order of `corners` as a map (tops, lefts)."""
        return values.reshape(len(self.lefts), len(self.tops)).T


@dataclass(frozen=True)
class Neighbourhood:
    """The windows that are judged, and those that they are compared with after a shift or a shrink.

    With a stride above 1 one window in stride² is judged, still against windows that are one pixel away. Under a budget
    only the `chosen` ones of them are, a map over `judged`; None: all.
    """

    judged: WindowGrid
    shifted: WindowGrid  # includes the judged windows
    shrunk: WindowGrid
    chosen: Mask | None = None

    @staticmethod
    def of(side: int, height: int, width: int, stride: int = 1) -> Neighbourhood:
        """Return the windows of a side in an image of a height and width."""
        down, across = height - side + 1, width - side + 1
        tops, lefts = np.arange(0, down, stride), np.arange(0, across, stride)
        around, within = np.arange(-1, 2), np.arange(SHRINK + 1)
        return Neighbourhood(
            judged=WindowGrid(side, tops, lefts),
            shifted=WindowGrid(side, _offset(tops, around, down), _offset(lefts, around, across)),
            shrunk=WindowGrid(side - SHRINK, _offset(tops, within, down + SHRINK), _offset(lefts, within, across + SHRINK)),
        )

    def __len__(self) -> int:
        return len(self.shifted) + len(self.shrunk)

    def needed(self, chosen: Mask) -> tuple[Mask, Mask]:
        """Return which of the shifted and of the shrunken windows it takes to judge the chosen ones, as maps."""
        moves = (self.shifted, np.arange(-1, 2)), (self.shrunk, np.arange(SHRINK + 1))
        shifted, shrunk = (_mark(grid, self.judged, chosen, offsets) for grid, offsets in moves)
        return shifted, shrunk


def look_up(known: Integers, wanted: Integers) -> tuple[Mask, Integers]:
    """Return which of the wanted numbers are among the known ones, and their indices there."""
    indices = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return known[indices] == wanted, indices


def _mark(grid: WindowGrid, judged: WindowGrid, chosen: Mask, offsets: Integers) -> Mask:
    """Return the windows of a grid that are some offsets away from chosen ones, down and across."""
    marked = np.zeros(grid.shape, bool)
    for down in offsets:
        there, rows = look_up(grid.tops, judged.tops + down)
        for across in offsets:
            exists, columns = look_up(grid.lefts, judged.lefts + across)
            marked[np.ix_(rows[there], columns[exists])] |= chosen[np.ix_(there, exists)]
    return marked


def _offset(positions: Integers, offsets: Integers, count: int) -> Integers:
    """Return the distinct sums of positions and offsets that lie in 0..count - 1."""
    every: Integers = np.unique(positions[:, None] + offsets)
    return every[(every >= 0) & (every < count)]
