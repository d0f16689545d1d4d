"""Manitest (seed 2): fast marching over a grid of motions, until the first node with a new label.

The grid is in exponential coordinates; its steps are those of the published port: pi/20 of rotation, a quarter of a pixel
(half a pixel for similarities, and larger images in proportion to their side), 0.1 of log-scale.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from brinell.lenses.geometry.manifool import BACKTRACKS, FLAT, FOOLED, NOT_ON_GRID, SILENT, WRONG, Fooled
from brinell.lenses.method import NO_ANSWER, Done, Stage, Task
from brinell.motion.geodesic import geodesic_scores
from brinell.motion.groups import Group
from brinell.motion.jacobian import jacobian_gram, metric
from brinell.motion.marching import Fronts

MOST_NODES = 50_000
MOST_DIMENSIONS = 4
WIDTH = 0.5  # of a shell of nodes that are asked together, in mean steps of the grid
TOGETHER = 1 << 26  # nodes of the grids of images that march side by side
CANDIDATES = 4  # motions of a sample whose paths are shortened


@dataclass(frozen=True)
class Grid:
    """How far the grid of a group's coordinates reaches, in nodes each way, and its steps."""

    half: Tensor
    steps: Tensor


def grid_of(group: Group, height: int, width: int, pixels: float | None = None) -> Grid:
    """Turns up to a half, moves up to half of a side in steps of so many `pixels`, scales up to e."""
    pixel = pixels or (0.5 if group.dimension > 3 else 0.25) * min(height, width) / 28
    steps = {"rotation": math.pi / 20, "x": pixel, "y": pixel, "scale": 0.1}
    far = {"rotation": math.pi * 0.999, "x": width / 2, "y": height / 2, "scale": 1.0}
    sizes = torch.tensor([steps[part] for part in group.parts], dtype=torch.float64)
    half = torch.tensor([int(far[part] / steps[part] + 1e-9) for part in group.parts])
    return Grid(half, sizes)


def manitest(
    group: Group,
    count: int,
    grid: Grid,
    *,
    eta: float,
    least: float,
    truth: Tensor | None = None,
    backtrack: bool = False,
) -> Generator[Task, Done, Fooled]:
    """The nearest node of the grid that changes the label, for each of `count` samples.

    With `backtrack` all nodes of its shell that change the label are candidates: the direct paths there are shortened by up
    to a step of the grid, and the one with the least score counts.
    """
    nodes = int((2 * grid.half + 1).prod())
    wave = max(1, min(count, TOGETHER // nodes))
    found = Fooled(
        score=torch.full((count,), torch.inf, dtype=torch.float64),
        motion=torch.zeros(count, group.dimension, dtype=torch.float64),
        label=torch.full((count,), -1),
        target=torch.full((count,), -1),
        reason=torch.full((count,), NOT_ON_GRID),
        steps=torch.zeros(count, dtype=torch.int64),
        queries=torch.zeros(count, dtype=torch.int64),
        gradients=torch.zeros(count, dtype=torch.int64),
    )
    none = torch.zeros(0, dtype=torch.int64)
    near = [_Near(none, found.motion[:0], none, none)]
    for start in range(0, count, wave):
        near += yield from _march(group, torch.arange(start, min(start + wave, count)), grid, found, truth)
    ends = _Near(*(torch.cat(parts) for parts in zip(*near, strict=True)))
    if not backtrack:
        ends = ends.at((ends.rank == 0).nonzero()[:, 0])
    order = yield from _kept(group, ends, found, eta, least)
    if backtrack and len(order):
        best = ends.at(order[_ranks(ends.sample[order]) < CANDIDATES])
        shorter = yield from _shortened(group, best, grid, found)
        yield from _kept(group, shorter, found, eta, least)
    return found


class _Near(NamedTuple):
    """Motions that change the labels of samples; several of a sample, ranked from the nearest by the metric."""

    sample: Tensor
    motion: Tensor
    label: Tensor
    rank: Tensor

    def at(self, rows: Tensor) -> _Near:
        return _Near(*(values[rows] for values in self))


def _ranks(samples: Tensor) -> Tensor:
    """The place of each among those of its sample, in their order."""
    order = samples.argsort(stable=True)
    counts = torch.unique_consecutive(samples[order], return_counts=True)[1]
    first = (counts.cumsum(0) - counts).repeat_interleave(counts)
    ranks = torch.empty_like(samples)
    ranks[order] = torch.arange(len(samples)) - first
    return ranks


def _kept(group: Group, near: _Near, found: Fooled, eta: float, least: float) -> Generator[Task, Done, Tensor]:
    """Keep the motions that have the least scores of their samples; all of them, from the least score to the largest."""
    if not len(near.sample):
        return near.sample
    score = (yield _scored(group, near.sample, near.motion, eta, least))["score"]
    order = score.argsort(stable=True)
    for row in order[_ranks(near.sample[order]) == 0].tolist():
        sample = near.sample[row]
        if score[row] < found.score[sample]:
            found.score[sample], found.motion[sample] = score[row], near.motion[row]
            found.label[sample] = found.target[sample] = near.label[row]
    return order


def _shortened(group: Group, near: _Near, grid: Grid, found: Fooled) -> Generator[Task, Done, _Near]:
    """Go back along direct paths, up to one step of the grid; the first points that still change the label."""
    steps = (near.motion.abs() / grid.steps).amax(1)
    back = 1 - torch.arange(1, BACKTRACKS, dtype=torch.float64) / BACKTRACKS  # the shortest way first
    shares = 1 - back / steps[:, None].clamp(min=1)
    tries = near.motion[:, None] * shares[..., None]
    rows = near.sample.repeat_interleave(len(back))
    matrices = group.exp(tries.flatten(0, 1))
    found.queries.index_add_(0, rows, torch.ones_like(rows))

    def do(stage: Stage, part: slice) -> Done:
        return {"label": stage.scores(rows[part], matrices[part])[1]}

    told = yield Task(len(rows), do, images=len(rows))
    fooling = told["label"].view(len(near.sample), -1) == near.label[:, None]
    shorter = fooling.any(1).nonzero()[:, 0]
    first = fooling.to(torch.int8).argmax(1)[shorter]
    return near.at(shorter)._replace(motion=tries[shorter, first])


def _march(
    group: Group, samples: Tensor, grid: Grid, found: Fooled, truth: Tensor | None
) -> Generator[Task, Done, list[_Near]]:
    """March from the identity until every sample has its node or its grid is used up; the nodes that were found."""
    near: list[_Near] = []
    fronts = Fronts(len(samples), grid.half, grid.steps)
    known = _Motions(group)
    yield from _fill_metrics(group, samples, fronts, known)
    edges = (fronts.metrics.diagonal(dim1=1, dim2=2).clamp(min=0).sqrt() * grid.steps)[: len(samples)]
    width = WIDTH * edges.sum(1) / (edges > 0).sum(1).clamp(min=1)
    alive = width > 0
    found.reason[samples[~alive]] = FLAT
    original = None if truth is None else truth[samples]
    while bool(alive.any()):
        resting = fronts.at_rest(alive)
        if bool(resting.any()):
            places = fronts.take_final(resting)
            labels = yield from _labels(samples, fronts, places, known)
            found.queries.index_add_(0, samples[fronts.image[places]], torch.ones_like(places))
            if original is None:  # the first nodes are the identity's
                original = torch.full((len(samples),), NO_ANSWER)
                original[fronts.image[places]] = labels
            near.append(_judge(samples, fronts, places, labels, original, found, alive))
            fronts.bound += torch.where(resting, width, 0.0)
            used = torch.bincount(fronts.image[fronts.taken], minlength=len(samples))
            waiting = torch.zeros_like(alive)
            waiting[fronts.image[fronts.changed]] = True
            alive &= (used < MOST_NODES) & waiting
            continue
        places = fronts.expand(alive)
        yield from _fill_metrics(group, samples, fronts, known)
        if len(places):
            told = yield Task(len(places), partial(_proposed, fronts, places))
            fronts.update(places, told["distance"])
    return near


def _proposed(fronts: Fronts, places: Tensor, stage: Stage, part: slice) -> Done:
    return {"distance": fronts.propose(places[part])}


def _judge(
    samples: Tensor, fronts: Fronts, places: Tensor, labels: Tensor, original: Tensor, found: Fooled, alive: Tensor
) -> _Near:
    """The new nodes whose label differs, the nearest first; their samples are done."""
    own = fronts.image[places]
    at_home = fronts.distance[places] == 0
    wrong = at_home & (labels != original[own]) | at_home & (labels == NO_ANSWER)
    if bool(wrong.any()):
        found.label[samples[own[wrong]]] = labels[wrong]
        found.reason[samples[own[wrong]]] = torch.where(labels[wrong] == NO_ANSWER, SILENT, WRONG)
        alive[own[wrong]] = False
    new = (labels != original[own]) & (labels != NO_ANSWER) & alive[own]
    order = fronts.distance[places].argsort(stable=True)
    order = order[new[order]]
    where = samples[own[order]]
    found.reason[where] = FOOLED
    alive[own[order]] = False
    return _Near(where, fronts.coordinates(places[order]), labels[order], _ranks(where))


class _Motions:
    """Matrices and drifts of nodes, kept: the images' fronts meet the same ones."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.index = torch.zeros(0, dtype=torch.int64)
        self.matrices = torch.zeros(0, 3, 3, dtype=torch.float64)

    def of(self, fronts: Fronts, places: Tensor) -> Tensor:
        """The matrices of nodes."""
        index = fronts.index[places]
        wanted, back = torch.unique(index, return_inverse=True)
        new = wanted[~torch.isin(wanted, self.index)]
        if len(new):
            coordinates = (fronts._grid(new) - fronts.half) * fronts.steps
            order = torch.cat([self.index, new]).argsort()
            self.matrices = torch.cat([self.matrices, self.group.exp(coordinates)])[order]
            self.index = torch.cat([self.index, new])[order]
        return self.matrices[torch.searchsorted(self.index, wanted)][back]


def _fill_metrics(group: Group, samples: Tensor, fronts: Fronts, known: _Motions) -> Generator[Task, Done, None]:
    """Ask for the metric at nodes that have none."""
    places = fronts.fresh
    if not len(places):
        return
    rows, matrices, coordinates = samples[fronts.image[places]], known.of(fronts, places), fronts.coordinates(places)

    def do(stage: Stage, part: slice) -> Done:
        frames = stage.frames(rows[part])
        return {"products": jacobian_gram(frames.move(matrices[part]), frames, group)}

    told = yield Task(len(places), do)
    fronts.metrics[places] = metric(group, coordinates, told["products"])
    fronts.fresh = places[:0]


def _labels(samples: Tensor, fronts: Fronts, places: Tensor, known: _Motions) -> Generator[Task, Done, Tensor]:
    rows, matrices = samples[fronts.image[places]], known.of(fronts, places)

    def do(stage: Stage, part: slice) -> Done:
        return {"label": stage.scores(rows[part], matrices[part])[1]}

    if not len(places):
        return torch.zeros(0, dtype=torch.int64)
    return (yield Task(len(places), do, images=len(places)))["label"]


def _scored(group: Group, samples: Tensor, motions: Tensor, eta: float, least: float) -> Task:
    def do(stage: Stage, part: slice) -> Done:
        return {"score": geodesic_scores(stage.frames(samples[part]), group, motions[part], eta=eta, least=least)}

    return Task(len(samples), do)
