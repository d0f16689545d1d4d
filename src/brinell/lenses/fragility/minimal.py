"""Minimal images by a tree search, as in the experiments with people (Ullman et al. 2016).

The search starts at the largest square windows. A recognised window is replaced by its descendants, which are a little
smaller and inside it; a window with no recognised descendant is a minimal image. A window that is too small to have
descendants is not: nothing smaller can be tested. All images and branches advance together, one generation at a time, and a
window that several branches reach is queried once.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from brinell.lenses.fragility.names import SMALLEST
from brinell.lenses.fragility.windows import window_side
from brinell.lenses.method import Outcome, Trials
from brinell.perturb.view import View


@dataclass(frozen=True)
class Descent:
    """How a window shrinks: to a share of its side (four corners and the centre), or by 2 pixels (all nine positions).

    Each generation keeps the `beam` most confident recognised windows per image.
    """

    step: float = 0.8
    beam: int = 500

    def side(self, side: int) -> int:
        """Return the side of a window's descendants."""
        return side - int(self.step) if self.step > 1 else min(side - 2, window_side(self.step, side, side))

    def offsets(self, gap: int) -> Tensor:
        """Return where descendants that are smaller by a gap begin inside a window, int64 (K, 2)."""
        half = gap // 2
        if self.step > 1:
            positions = torch.tensor(sorted({0, half, gap}))
            return torch.stack(torch.meshgrid(positions, positions, indexing="ij"), -1).view(-1, 2)
        return torch.tensor([[0, 0], [0, gap], [half, half], [gap, 0], [gap, gap]])

    def generations(self, side: int) -> int:
        """Return the number of sides from this one down, including it."""
        count = 0
        while side >= SMALLEST:
            side, count = self.side(side), count + 1
        return count


@dataclass(frozen=True)
class Windows:
    """Windows of several images: samples (T,), corners (T, 2) and sides (T,)."""

    sample: Tensor
    corner: Tensor
    side: Tensor

    def at(self, rows: Tensor) -> Windows:
        """Return some of the windows."""
        return Windows(self.sample[rows], self.corner[rows], self.side[rows])

    def __len__(self) -> int:
        return len(self.sample)


@dataclass
class MinimalSearch:
    """The state of a search: minimal images so far, and the samples that were queried.

    `parts` holds windows with the true class's probability and the prediction.
    """

    parts: list[tuple[Windows, Tensor, Tensor]] = field(default_factory=list)
    queries: list[Tensor] = field(default_factory=list)
    cut: set[int] = field(default_factory=set)  # samples of which the beam dropped branches
    bottom: set[int] = field(default_factory=set)  # samples with recognised windows that can't be shrunk

    def windows(self) -> Windows:
        """Return all minimal images."""
        none = torch.zeros(0, dtype=torch.int64)
        return Windows(
            torch.cat([none, *(part.sample for part, *_ in self.parts)]),
            torch.cat([none.view(0, 2), *(part.corner for part, *_ in self.parts)]),
            torch.cat([none, *(part.side for part, *_ in self.parts)]),
        )

    def probabilities(self) -> Tensor:
        """Return the true class's probability at each minimal image."""
        return torch.cat([torch.zeros(0), *(probability for _, probability, _ in self.parts)])

    def predictions(self) -> Tensor:
        """Return the prediction at each minimal image."""
        return torch.cat([torch.zeros(0, dtype=torch.int64), *(prediction for *_, prediction in self.parts)])


def largest_windows(sizes: Tensor) -> Windows:
    """Return the largest square windows of images: at the start, the middle and the end of the longer side."""
    windows = []
    for sample, (height, width) in enumerate(sizes.tolist()):
        side = min(height, width)
        for share in (0, 1, 2) if height != width else (0,):
            windows.append((sample, (width - side) * share // 2, (height - side) * share // 2, side))
    table = torch.unique(torch.tensor(windows), dim=0)
    return Windows(table[:, 0], table[:, 1:3], table[:, 3])


def descend(view: View, first: Windows, descent: Descent) -> Generator[Trials, Outcome, MinimalSearch]:
    """Follow recognised windows down to the minimal ones."""
    found = MinimalSearch()
    windows, recognised, confidence, label = yield from _query(view, first, found)
    while len(windows):
        kept = _most_confident(windows.sample, confidence, descent.beam)
        if len(kept) < len(windows):
            dropped = torch.ones(len(windows), dtype=torch.bool)
            dropped[kept] = False
            found.cut |= set(windows.sample[dropped].tolist())
        windows, confidence, label = windows.at(kept), confidence[kept], label[kept]
        children, parent = _descendants(windows, descent)
        alive = torch.ones(len(windows), dtype=torch.bool)
        alive[parent] = False
        found.bottom |= set(windows.sample[alive].tolist())
        if len(children):
            distinct, index = _distinct(children)
            below, recognised, below_confidence, below_label = yield from _query(view, distinct, found)
            alive[parent[recognised[index]]] = True
        ends = (~alive).nonzero()[:, 0]
        found.parts.append((windows.at(ends), confidence[ends], label[ends]))
        if not len(children):
            break
        windows, confidence, label = below, below_confidence, below_label
    return found


def _query(
    view: View, windows: Windows, found: MinimalSearch
) -> Generator[Trials, Outcome, tuple[Windows, Tensor, Tensor, Tensor]]:
    """Query windows and return the recognised ones, which these are, and the true class's probability and prediction."""
    found.queries.append(windows.sample)
    parameters = torch.cat([windows.corner, windows.side[:, None]], 1).to(torch.float64)
    outcome = yield Trials(windows.sample, view, parameters)
    recognised = ~outcome.broken.cpu()
    rows = recognised.nonzero()[:, 0]
    verdict = outcome.verdict
    return windows.at(rows), recognised, verdict.probability.cpu()[rows], verdict.prediction.cpu()[rows]


def _descendants(windows: Windows, descent: Descent) -> tuple[Windows, Tensor]:
    """Return all descendants, and the index of each one's parent."""
    samples, corners, sides, parents = [], [], [], []
    for side in torch.unique(windows.side).tolist():
        smaller = descent.side(side)
        if smaller < 1:
            continue
        rows = (windows.side == side).nonzero()[:, 0]
        offsets = descent.offsets(side - smaller)
        corners.append((windows.corner[rows, None] + offsets).flatten(0, 1))
        samples.append(windows.sample[rows].repeat_interleave(len(offsets)))
        parents.append(rows.repeat_interleave(len(offsets)))
        sides.append(torch.full((len(rows) * len(offsets),), smaller))
    if not samples:
        return windows.at(torch.zeros(0, dtype=torch.int64)), torch.zeros(0, dtype=torch.int64)
    return Windows(torch.cat(samples), torch.cat(corners), torch.cat(sides)), torch.cat(parents)


def _distinct(windows: Windows) -> tuple[Windows, Tensor]:
    """Return each window once, those of an image together, and the index of each given window among them."""
    table = torch.cat([windows.sample[:, None], windows.side[:, None], windows.corner], 1)
    once, index = torch.unique(table, dim=0, return_inverse=True)
    return Windows(once[:, 0], once[:, 2:], once[:, 1]), index


def _most_confident(samples: Tensor, confidence: Tensor, most: int) -> Tensor:
    """Return the indices of at most `most` windows per sample, in their order."""
    order = torch.argsort(confidence, descending=True, stable=True)
    order = order[torch.argsort(samples[order], stable=True)]
    own = samples[order]
    position = torch.arange(len(own)) - torch.searchsorted(own, own)
    return order[position < most].sort().values
