"""Which cells of an image's grid are queried under a budget: a design that never depends on answers.

An image has a grid of cells for every change, such as 30 levels or 100 spots. Each image queries them in an order of
its own: one fixed order whose beginnings are all evenly spread, shifted by a random number. So every cell is equally
likely to be among the first k, a larger budget adds to a smaller one, and the whole grid is the full run. The draws
name the seed, the change and the image, never the model: two models are queried at the same cells.

A search can't be divided: there a budget leaves out images, the same ones for every change, so that changes stay paired.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from brinell.draws import Draws, key

_SHIFT, _ROUNDING, _ORDER, _PLACE = range(4)  # purposes of draws


@dataclass(frozen=True)
class Chosen:
    """Cells to query now, bool (N, cells), and each image's share of cells queried so far, float64 (N,).

    The share is the probability with which each of its cells was included, given how many were.
    """

    cells: Tensor
    inclusion: Tensor


@dataclass(frozen=True)
class Sampling:
    """The share of cells to query; `done` is the share that a smaller budget has queried before."""

    seed: int
    share: float = 1.0
    done: float = 0.0

    def choose(self, change: str, ids: Tensor, cells: int) -> Chosen:
        """Return the cells of images (int64 (N,) ids) to query for a change."""
        draws = Draws.of(key("budget", self.seed, change), ids.cpu())
        shift = draws.below(_SHIFT, 1, cells)
        rank = spread_order(cells)[1][(torch.arange(cells) - shift) % cells]
        before, now = (_count(share, cells, draws)[:, None] for share in (self.done, self.share))
        return Chosen((rank >= before) & (rank < now), now[:, 0].to(torch.float64) / cells)

    def place(self, change: str, ids: Tensor) -> Tensor:
        """Return three numbers in (0, 1) for each image, (N, 3): where its grid begins, down and across, and rounding."""
        return Draws.of(key("budget", self.seed, change), ids.cpu()).uniform(_PLACE, 3)


def _count(share: float, cells: int, draws: Draws) -> Tensor:
    """Return how many cells each image queries: the share of them, rounded up or down at random."""
    if share >= 1:
        return torch.full((len(draws.keys),), cells)
    return (share * cells + draws.uniform(_ROUNDING, 1)[:, 0]).floor().to(torch.int64)


def shuffled_ranks(seed: int, ids: Tensor) -> Tensor:
    """Return the position of each image (int64 (N,) ids) in a random order of all of them, int64 (N,)."""
    places = Draws.of(key("budget", seed), ids.cpu()).uniform(_ORDER, 1)[:, 0]
    ranks = torch.empty(len(ids), dtype=torch.int64)
    ranks[torch.argsort(places, stable=True)] = torch.arange(len(ids))
    return ranks


def count_images(share: float, images: int) -> int:
    """Return how many images a share of them is, rounded up."""
    return min(images, math.ceil(share * images - 1e-9))


@lru_cache(64)
def spread_order(cells: int) -> tuple[Tensor, Tensor]:
    """Return the cells in an order whose beginnings are evenly spread, and the position of each cell in it.

    The order is van der Corput's in base 3: its first 3, 9, 27, … points are equally far apart, and a tenth of 30 levels is
    3 of them. In it every number is a fraction with its digits reversed.
    """
    left, fraction, place = torch.arange(cells), torch.zeros(cells, dtype=torch.float64), 1 / 3
    while bool(left.any()):
        fraction += place * (left % 3)
        left, place = left // 3, place / 3
    order = torch.argsort(torch.argsort(fraction))
    return order, torch.argsort(order)
