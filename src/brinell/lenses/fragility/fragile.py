"""Maps of answers to maps of fragile windows: pure functions of arrays.

A window is fragile if a small move flips the answer: a shift by one pixel, or a shrink by two pixels that stays inside
the window. Loose: at least one such move flips it; strict: all of them do. Maps are (tops, lefts) of a `WindowGrid`.
Windows at the border have fewer neighbours; a window without any is not judged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from brinell.lenses.fragility.names import SHRINK
from brinell.lenses.fragility.windows import Array, Integers, Mask, Neighbourhood, WindowGrid, look_up

Move = Literal["shift", "shrink"]
JudgedBy = Literal["correct", "label"]
Offsets = tuple[tuple[int, int], ...]  # down and across
SHRUNK: Offsets = tuple((down, across) for down in range(SHRINK + 1) for across in range(SHRINK + 1))
EIGHT: Offsets = tuple((down, across) for down in (-1, 0, 1) for across in (-1, 0, 1) if (down, across) != (0, 0))
FOUR: Offsets = ((-1, 0), (0, -1), (0, 1), (1, 0))
NEIGHBOURS = {8: EIGHT, 4: FOUR}


@dataclass(frozen=True)
class WindowAnswers:
    """A model's answers on the windows of a grid, as maps.

    `correct`: right by the criterion; `label`: the prediction; `confidence`: probability of the true class (float32);
    `rank`: number of classes ranked above it, at most 255; `known`: which windows were queried (None: all).
    """

    grid: WindowGrid
    correct: Mask
    label: Integers
    confidence: Array
    rank: Array
    known: Mask | None = None

    def top(self, k: int) -> WindowAnswers:
        """Return the same answers, correct where the true class is among the top k (k up to 255)."""
        return replace(self, correct=self.rank < k)

    def at(self, tops: Integers, lefts: Integers, name: str) -> tuple[Array, Mask]:
        """Return one of the maps at every combination of tops and lefts, and where the grid has such a window."""
        down, rows = look_up(self.grid.tops, tops)
        across, columns = look_up(self.grid.lefts, lefts)
        values: Array = getattr(self, name)
        exists = down[:, None] & across
        if self.known is not None:
            exists = exists & self.known[rows[:, None], columns]
        return values[rows[:, None], columns], exists


@dataclass(frozen=True)
class FragileMaps:
    """Maps over the judged windows for one move: which are fragile, which were correct, which could be judged at all."""

    loose: Mask
    strict: Mask
    correct: Mask
    judged: Mask

    def signs(self, degree: str) -> NDArray[np.int8]:
        """Return +1 where right becomes wrong, -1 where wrong becomes right and 0 elsewhere, judged by correctness."""
        flips: Mask = getattr(self, degree)
        return np.where(self.correct, 1, -1).astype(np.int8) * flips


@dataclass(frozen=True)
class Drop:
    """Two windows one move apart, the first right and the second wrong: their corners and the drop in confidence."""

    left: int
    top: int
    to_left: int
    to_top: int
    drop: float


def find_fragile(
    windows: Neighbourhood,
    large: WindowAnswers,
    after: WindowAnswers,
    move: Move,
    *,
    by: JudgedBy = "correct",
    neighbours: int = 8,
) -> FragileMaps:
    """Return which windows change their answer after a move.

    `after` are the answers on the moved windows: `large` itself for a shift, those of the smaller windows for a shrink.
    """
    tops, lefts = windows.judged.tops, windows.judged.lefts
    own, _ = large.at(tops, lefts, by)
    correct, _ = large.at(tops, lefts, "correct")
    some, every, judged = np.zeros_like(correct), np.ones_like(correct), np.zeros_like(correct)
    for down, across in _offsets(move, neighbours):
        values, exists = after.at(tops + down, lefts + across, by)
        differs = values != own
        some |= differs & exists
        every &= differs | ~exists
        judged |= exists
    if windows.chosen is not None:
        some, judged = some & windows.chosen, judged & windows.chosen
    return FragileMaps(some, every & judged, correct, judged)


def find_largest_drop(
    windows: Neighbourhood, large: WindowAnswers, after: WindowAnswers, move: Move, *, neighbours: int = 8
) -> Drop | None:
    """Return the right and the wrong window with the largest drop in confidence; None if no move makes one wrong."""
    tops, lefts = windows.judged.tops, windows.judged.lefts
    correct, _ = large.at(tops, lefts, "correct")
    confidence, _ = large.at(tops, lefts, "confidence")
    pairs = []
    for down, across in _offsets(move, neighbours):
        still, exists = after.at(tops + down, lefts + across, "correct")
        drops = confidence - after.at(tops + down, lefts + across, "confidence")[0]
        lost = correct & exists & ~still
        lost = lost if windows.chosen is None else lost & windows.chosen
        if lost.any():
            drops = np.where(lost, drops, np.float32(-np.inf))
            row, column = divmod(int(drops.argmax()), drops.shape[1])
            left, top = int(lefts[column]), int(tops[row])
            pairs.append(Drop(left, top, left + across, top + down, float(drops[row, column])))
    return max(pairs, key=lambda pair: pair.drop, default=None)


def _offsets(move: Move, neighbours: int) -> Offsets:
    """Return how far down and across the moved windows begin."""
    return SHRUNK if move == "shrink" else NEIGHBOURS[neighbours]


def find_inside(grid: WindowGrid, box: Array) -> Mask:
    """Return which windows have their centre in a box (xyxy in pixels), as a map."""
    left, top, right, bottom = box.tolist()
    down, across = grid.tops + grid.side / 2, grid.lefts + grid.side / 2
    rows: Mask = (down >= top) & (down <= bottom)
    columns: Mask = (across >= left) & (across <= right)
    return rows[:, None] & columns
