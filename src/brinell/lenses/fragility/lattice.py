"""Which windows of an image a budget judges: a lattice with a random offset, whose stride halves as the budget grows.

A window is judged against its neighbours, so that judging one of a hundred takes up to nine of a hundred queries. Windows
come in an order that begins with a wide lattice and fills it in: every beginning of it is spread evenly, and a larger
budget adds to a smaller one. What was queried may judge more windows than were asked for; they count, too. The order is
shifted by a random number of windows down and across, and around the edges: all windows are equally likely to be judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from brinell.lenses.fragility.windows import Mask, Neighbourhood

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
_APART = 3  # windows this far apart have no neighbours in common
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Pattern:
    """The order of a grid of windows before it is shifted.

    `costs` (windows + 1,) is the share of the queries that the first windows of the order take; `complete` (tops, lefts)
    is the number of windows of the order after which the neighbours of a window are all known.
    """

    costs: Array
    complete: Integers

    def count(self, share: float, rounding: float) -> int:
        """Return how many windows of the order a share of the queries is, rounded up or down by a number in [0, 1]."""
        if share >= 1:
            return len(self.costs) - 1
        count = int(np.searchsorted(self.costs, share, side="right")) - 1
        left, step = share - self.costs[count], self.costs[count + 1] - self.costs[count]
        return count + int(rounding < left / step)

    def judged(self, share: float, draws: Sequence[float]) -> Mask:
        """Return which windows (tops, lefts) a share judges.

        The draws are numbers in (0, 1): for the shift down, the shift across, and rounding.
        """
        down, across = (int(draw * side) for draw, side in zip(draws, self.complete.shape, strict=False))
        found: Mask = np.roll(self.complete <= self.count(share, draws[2]), (down, across), (0, 1))
        return found


def choose(windows: Neighbourhood, stride: int, share: float, draws: Sequence[float]) -> Mask:
    """Return which of an image's windows (tops, lefts) a share of the queries judges."""
    return pattern_of(windows.judged.shape, min(stride, _APART)).judged(share, draws)


@lru_cache(16)
def pattern_of(shape: tuple[int, int], apart: int) -> Pattern:
    """Return the order of a grid whose windows are some pixels apart, on a torus."""
    order = _lattice_order(shape)
    rank = np.empty(order.size, dtype=np.int64)
    rank[order] = np.arange(1, order.size + 1)
    queried = np.full((shape[0] * apart, shape[1] * apart), _NEVER)
    queried[::apart, ::apart] = rank.reshape(shape)
    queried = _around(queried, np.minimum)  # when a window is queried first, as itself or as a neighbour
    complete = _around(queried, np.maximum)[::apart, ::apart]
    counts = np.bincount(queried[queried < _NEVER], minlength=order.size + 1)
    return Pattern(np.cumsum(counts) / counts.sum(), complete)


def _lattice_order(shape: tuple[int, int]) -> Integers:
    """Return the places of a grid, row by row, in an order whose beginnings are lattices of stride 2ᵏ, filled in.

    Places are sorted by the bits of both coordinates, the lowest first: even rows and columns come before all others.
    """
    down, across = np.meshgrid(*(np.arange(side) for side in shape), indexing="ij")
    place = np.zeros(shape, dtype=np.int64)
    for bit in range(max(1, int(max(shape) - 1).bit_length())):
        low, right = down >> bit & 1, across >> bit & 1
        place = 4 * place + (2 * (low ^ right) + right)  # the middle of a square comes before the middles of its sides
    return np.argsort(place.ravel(), kind="stable")


def _around(values: Integers, combine: np.ufunc) -> Integers:
    """Return the smallest or largest of the values around each place, on a torus."""
    for axis in (0, 1):
        values = combine(values, combine(np.roll(values, 1, axis), np.roll(values, -1, axis)))
    return values
