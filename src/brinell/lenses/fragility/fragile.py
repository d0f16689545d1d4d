"""From maps of answers to maps of fragile windows: pure functions of maps.

A window is fragile where a small change flips the answer: a shift by one pixel, or a shrink by two that stays inside it.
Loose: some such change flips it; strict: all do. Maps are (tops, lefts) of a `Grid`. At the image's border a window has
fewer neighbours, and one that has none is not judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from brinell.lenses.fragility.windows import SHRINK, Grid, Neighbourhood

Change = Literal["shift", "shrink"]
By = Literal["correct", "label"]
KINDS = ("loose shift", "strict shift", "loose shrink", "strict shrink")
SHRUNKEN = tuple((down, across) for down in range(SHRINK + 1) for across in range(SHRINK + 1))
EIGHT = tuple((down, across) for down in (-1, 0, 1) for across in (-1, 0, 1) if (down, across) != (0, 0))
FOUR = ((-1, 0), (0, -1), (0, 1), (1, 0))
NEIGHBOURS = {8: EIGHT, 4: FOUR}


@dataclass(frozen=True)
class Answers:
    """What was answered to the windows of a grid, as maps.

    `correct`: right by the criterion; `label`: the answer; `confidence`: the true class's probability; `rank`: how many
    classes are placed before it, at most 255.
    """

    grid: Grid
    correct: Tensor
    label: Tensor
    confidence: Tensor
    rank: Tensor

    def top(self, k: int) -> Answers:
        """The same answers, right where the true class is among the k best (k up to 255)."""
        return replace(self, correct=self.rank < k)

    def at(self, tops: Tensor, lefts: Tensor, name: str) -> tuple[Tensor, Tensor]:
        """One of the maps where some tops meet some lefts, and at which of these places there is a window."""
        down, rows = _places(self.grid.tops, tops)
        across, columns = _places(self.grid.lefts, lefts)
        values: Tensor = getattr(self, name)
        return values[rows[:, None], columns], down[:, None] & across


def _places(known: Tensor, asked: Tensor) -> tuple[Tensor, Tensor]:
    """Which of the asked numbers are among the known ones, and where."""
    places = torch.searchsorted(known, asked).clamp(max=len(known) - 1)
    return known[places] == asked, places


@dataclass(frozen=True)
class Fragile:
    """Judged windows after one kind of change: maps of which are fragile, which were right, which could be compared."""

    loose: Tensor
    strict: Tensor
    correct: Tensor
    judged: Tensor

    def signs(self, degree: str) -> Tensor:
        """+1 where right becomes wrong, -1 where wrong becomes right, 0 elsewhere; told of fragility by correctness."""
        flips: Tensor = getattr(self, degree)
        return torch.where(self.correct, 1, -1).to(torch.int8) * flips


@dataclass(frozen=True)
class Pair:
    """Two windows a small change apart, the first right and the second wrong: their corners, and the loss of confidence."""

    left: int
    top: int
    to_left: int
    to_top: int
    drop: float


def fragile(windows: Neighbourhood, large: Answers, after: Answers, change: Change, by: By, neighbours: int = 8) -> Fragile:
    """Which windows a change makes answer otherwise; `after` are the answers to the changed windows.

    For a shift these are `large` itself, for a shrink those of the smaller windows.
    """
    tops, lefts = windows.judged.tops, windows.judged.lefts
    own, _ = large.at(tops, lefts, by)
    right, _ = large.at(tops, lefts, "correct")
    some, every, judged = torch.zeros_like(right), torch.ones_like(right), torch.zeros_like(right)
    for down, across in _offsets(change, neighbours):
        values, there = after.at(tops + down, lefts + across, by)
        differs = values != own
        some |= differs & there
        every &= differs | ~there
        judged |= there
    return Fragile(some, every & judged, right, judged)


def best_pair(windows: Neighbourhood, large: Answers, after: Answers, change: Change, neighbours: int = 8) -> Pair | None:
    """The pair whose confidence in the true class falls the most while right turns to wrong; None where none does."""
    tops, lefts = windows.judged.tops, windows.judged.lefts
    right, _ = large.at(tops, lefts, "correct")
    sure, _ = large.at(tops, lefts, "confidence")
    pairs = []
    for down, across in _offsets(change, neighbours):
        still, there = after.at(tops + down, lefts + across, "correct")
        drops = sure - after.at(tops + down, lefts + across, "confidence")[0]
        lost = right & there & ~still
        if bool(lost.any()):
            drops = drops.masked_fill(~lost, -torch.inf)
            row, column = divmod(int(drops.argmax()), drops.shape[1])
            left, top = int(lefts[column]), int(tops[row])
            pairs.append(Pair(left, top, left + across, top + down, float(drops[row, column])))
    return max(pairs, key=lambda pair: pair.drop, default=None)


def _offsets(change: Change, neighbours: int) -> Iterator[tuple[int, int]]:
    """How far down and across the changed windows begin."""
    yield from SHRUNKEN if change == "shrink" else NEIGHBOURS[neighbours]


def inside(grid: Grid, box: Tensor) -> Tensor:
    """Which windows have their middle in a box (xyxy in pixels), as a map."""
    left, top, right, bottom = box.tolist()
    down, across = grid.tops + grid.side / 2, grid.lefts + grid.side / 2
    rows: Tensor = (down >= top) & (down <= bottom)
    columns: Tensor = (across >= left) & (across <= right)
    return rows[:, None] & columns
