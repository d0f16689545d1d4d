"""Minimal images by a tree search, as in the experiments with people (Ullman et al. 2016).

It begins at the largest square windows. A recognised window is replaced by its descendants, a little smaller and inside it;
one none of whose descendants is recognised is a minimal image. One that is too small to have any is none: nothing is known
of it. All images and all branches advance together, a generation
at a time, and a window that several branches reach is asked about once.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from brinell.lenses.fragility.options import SMALLEST
from brinell.lenses.fragility.windows import window_side
from brinell.lenses.method import Outcome, Trials
from brinell.perturb.view import View


@dataclass(frozen=True)
class Descent:
    """How a window shrinks: to a share of its side (its corners and its middle), or by 2 pixels (all nine places).

    Of a generation's recognised windows the `beam` most confident of each image go on.
    """

    step: float = 0.8
    beam: int = 500

    def side(self, side: int) -> int:
        """The side of a window's descendants."""
        return side - int(self.step) if self.step > 1 else min(side - 2, window_side(self.step, side, side))

    def offsets(self, gap: int) -> Tensor:
        """Where descendants that are smaller by a gap begin inside a window, int64 (K, 2)."""
        half = gap // 2
        if self.step > 1:
            places = torch.tensor(sorted({0, half, gap}))
            return torch.stack(torch.meshgrid(places, places, indexing="ij"), -1).view(-1, 2)
        return torch.tensor([[0, 0], [0, gap], [half, half], [gap, 0], [gap, gap]])

    def generations(self, side: int) -> int:
        """How many sides there are from a side down, with it."""
        count = 0
        while side >= SMALLEST:
            side, count = self.side(side), count + 1
        return count


@dataclass(frozen=True)
class Windows:
    """Windows of several images, of one generation: samples (T,), corners (T, 2), sides (T,)."""

    sample: Tensor
    corner: Tensor
    side: Tensor

    def at(self, rows: Tensor) -> Windows:
        """Some of them."""
        return Windows(self.sample[rows], self.corner[rows], self.side[rows])

    def __len__(self) -> int:
        return len(self.sample)


@dataclass
class Minimal:
    """The minimal images that were found, and the true class's probability and the prediction there; what was asked."""

    parts: list[tuple[Windows, Tensor, Tensor]] = field(default_factory=list)
    queries: list[Tensor] = field(default_factory=list)
    cut: set[int] = field(default_factory=set)  # samples of which not all branches were followed
    bottom: set[int] = field(default_factory=set)  # samples with windows that are recognised and can't be shrunk


def first_windows(sizes: Tensor) -> Windows:
    """The largest square windows of images: at the beginning, the middle and the end of the longer side."""
    made = []
    for sample, (height, width) in enumerate(sizes.tolist()):
        side = min(height, width)
        for share in (0, 1, 2) if height != width else (0,):
            made.append((sample, (width - side) * share // 2, (height - side) * share // 2, side))
    table = torch.unique(torch.tensor(made), dim=0)
    return Windows(table[:, 0], table[:, 1:3], table[:, 3])


def descend(view: View, first: Windows, descent: Descent) -> Generator[Trials, Outcome, Minimal]:
    """Follow recognised windows down to the minimal ones."""
    found = Minimal()
    windows, right, sure, label = yield from _recognised(view, first, found)
    while len(windows):
        kept = _most_confident(windows.sample, sure, descent.beam)
        if len(kept) < len(windows):
            left_out = torch.ones(len(windows), dtype=torch.bool)
            left_out[kept] = False
            found.cut |= set(windows.sample[left_out].tolist())
        windows, sure, label = windows.at(kept), sure[kept], label[kept]
        children, parent = _descendants(windows, descent)
        lives = torch.ones(len(windows), dtype=torch.bool)
        lives[parent] = False
        found.bottom |= set(windows.sample[lives].tolist())
        if len(children):
            distinct, place = _distinct(children)
            below, right, below_sure, below_label = yield from _recognised(view, distinct, found)
            lives[parent[right[place]]] = True
        ends = (~lives).nonzero()[:, 0]
        found.parts.append((windows.at(ends), sure[ends], label[ends]))
        if not len(children):
            break
        windows, sure, label = below, below_sure, below_label
    return found


def _recognised(
    view: View, windows: Windows, found: Minimal
) -> Generator[Trials, Outcome, tuple[Windows, Tensor, Tensor, Tensor]]:
    """Ask about windows: those that are recognised, which these are, and the answers to them."""
    found.queries.append(windows.sample)
    parameters = torch.cat([windows.corner, windows.side[:, None]], 1).to(torch.float64)
    outcome = yield Trials(windows.sample, view, parameters)
    right = ~outcome.broken.cpu()
    rows = right.nonzero()[:, 0]
    return windows.at(rows), right, outcome.verdict.probability.cpu()[rows], outcome.verdict.prediction.cpu()[rows]


def _descendants(windows: Windows, descent: Descent) -> tuple[Windows, Tensor]:
    """All descendants, and the places of the windows that they are of."""
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
    """Each window once, those of an image side by side, and where each of the given ones is."""
    table = torch.cat([windows.sample[:, None], windows.side[:, None], windows.corner], 1)
    once, place = torch.unique(table, dim=0, return_inverse=True)
    return Windows(once[:, 0], once[:, 2:], once[:, 1]), place


def _most_confident(samples: Tensor, sure: Tensor, most: int) -> Tensor:
    """Places of at most so many of each sample, in their order."""
    order = torch.argsort(sure, descending=True, stable=True)
    order = order[torch.argsort(samples[order], stable=True)]
    own = samples[order]
    place = torch.arange(len(own)) - torch.searchsorted(own, own)
    return order[place < most].sort().values
