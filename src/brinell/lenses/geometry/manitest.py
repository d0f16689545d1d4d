"""Manitest (Fawzi and Frossard 2015): fast marching over a grid of motions, up to the first node with another label.

The grid is in exponential coordinates; its steps are those of the published port: pi/20 of rotation, a quarter of a pixel
(half a pixel for similarities; larger images in proportion to their side), 0.1 of log-scale. It ends at half a turn, half a
side and a log-scale of 1. Where the front reaches its edge in shift or scale before a label changes, a smaller motion may
lie beyond; rows say so.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from brinell.lenses.geometry.search import (
    AT_EDGE,
    BACKTRACKS,
    FOOLED,
    NO_EFFECT,
    NOT_ON_GRID,
    OUT_OF_NODES,
    UNANSWERED,
    WRONG_WHEN_CLEAN,
    PathSteps,
    SearchResult,
    query_labels,
    query_motions,
    score_motions,
)
from brinell.lenses.method import NO_ANSWER, Done, Stage, Task
from brinell.motion.groups import Group
from brinell.motion.jacobian import jacobian_gram, metric
from brinell.motion.marching import Fronts

MAX_NODES = 50_000
MAX_DIMENSIONS = 4
SHELL_WIDTH = 0.5  # of nodes that are queried together, in mean steps of the grid
NODES_AT_ONCE = 1 << 26  # of the grids of images that march together
NODES_PER_BATCH = 128  # that are updated at once
CANDIDATES = 4  # motions of a sample whose paths are shortened


@dataclass(frozen=True)
class Grid:
    """A grid of a group's coordinates: its reach in nodes in each direction, and its steps."""

    half: Tensor
    steps: Tensor


def make_grid(group: Group, height: int, width: int, pixels: float | None = None) -> Grid:
    """Return a grid of rotations up to half a turn, shifts up to half a side in steps of `pixels`, and scales up to e."""
    pixel = pixels or (0.5 if group.dimension > 3 else 0.25) * min(height, width) / 28
    steps = {"rotation": math.pi / 20, "x": pixel, "y": pixel, "scale": 0.1}
    reach = {"rotation": math.pi * 0.999, "x": width / 2, "y": height / 2, "scale": 1.0}
    sizes = torch.tensor([steps[part] for part in group.parts], dtype=torch.float64)
    half = torch.tensor([int(reach[part] / steps[part] + 1e-9) for part in group.parts])
    return Grid(half, sizes)


class _Candidates(NamedTuple):
    """Motions that change the labels of samples; several per sample, ranked from the nearest by the metric."""

    sample: Tensor
    motion: Tensor
    label: Tensor
    rank: Tensor

    def at(self, rows: Tensor) -> _Candidates:
        return _Candidates(*(values[rows] for values in self))


def manitest(
    group: Group, count: int, grid: Grid, *, path: PathSteps, truth: Tensor | None = None, backtrack: bool = False
) -> Generator[Task, Done, SearchResult]:
    """Return the nearest node of the grid that changes the label, for each of `count` samples.

    With `backtrack`, all nodes of its shell that change the label are candidates: the direct paths to them are shortened by
    up to a step of the grid, and the one with the smallest score counts. `truth` replaces the model's own labels.
    """
    nodes = int((2 * grid.half + 1).prod())
    wave = max(1, min(count, NODES_AT_ONCE // nodes))
    result = SearchResult.empty(count, group.dimension, NOT_ON_GRID)
    none = torch.zeros(0, dtype=torch.int64)
    near = [_Candidates(none, result.motion[:0], none, none)]
    for start in range(0, count, wave):
        samples = torch.arange(start, min(start + wave, count))
        near += yield from _March(group, samples, grid, result, None if truth is None else truth[samples]).run()
    ends = _Candidates(*(torch.cat(parts) for parts in zip(*near, strict=True)))
    if not backtrack:
        ends = ends.at((ends.rank == 0).nonzero()[:, 0])
    order = yield from _keep_smallest(group, ends, result, path)
    if backtrack and len(order):
        best = ends.at(order[_ranks(ends.sample[order]) < CANDIDATES])
        shorter = yield from _shorten(group, best, grid, result)
        yield from _keep_smallest(group, shorter, result, path)
    return result


def _ranks(samples: Tensor) -> Tensor:
    """Return the rank of each entry among those of its sample, in their order."""
    order = samples.argsort(stable=True)
    counts = torch.unique_consecutive(samples[order], return_counts=True)[1]
    first = (counts.cumsum(0) - counts).repeat_interleave(counts)
    ranks = torch.empty_like(samples)
    ranks[order] = torch.arange(len(samples)) - first
    return ranks


def _keep_smallest(group: Group, near: _Candidates, result: SearchResult, path: PathSteps) -> Generator[Task, Done, Tensor]:
    """Keep the motions with the smallest scores of their samples, and return all in increasing score."""
    if not len(near.sample):
        return near.sample
    score = (yield score_motions(group, near.sample, near.motion, path))["score"]
    order = score.argsort(stable=True)
    for row in order[_ranks(near.sample[order]) == 0].tolist():
        sample = near.sample[row]
        if score[row] < result.score[sample]:
            result.score[sample], result.motion[sample] = score[row], near.motion[row]
            result.label[sample] = result.target[sample] = near.label[row]
    return order


def _shorten(group: Group, near: _Candidates, grid: Grid, result: SearchResult) -> Generator[Task, Done, _Candidates]:
    """Go back along direct paths by up to one step of the grid; return the first points that still change the label."""
    steps = (near.motion.abs() / grid.steps).amax(1)
    back = 1 - torch.arange(1, BACKTRACKS, dtype=torch.float64) / BACKTRACKS  # the shortest path first
    shares = 1 - back / steps[:, None].clamp(min=1)
    tries = near.motion[:, None] * shares[..., None]
    rows = near.sample.repeat_interleave(len(back))
    result.queries.index_add_(0, rows, torch.ones_like(rows))
    answers = yield query_motions(group, rows, tries.flatten(0, 1))
    fooling = answers["label"].view(len(near.sample), -1) == near.label[:, None]
    shorter = fooling.any(1).nonzero()[:, 0]
    first = fooling.to(torch.int8).argmax(1)[shorter]
    return near.at(shorter)._replace(motion=tries[shorter, first])


class _March:
    """Samples whose fronts march together from the identity; `original` are the labels to leave, None until queried."""

    def __init__(self, group: Group, samples: Tensor, grid: Grid, result: SearchResult, original: Tensor | None) -> None:
        self.group, self.samples, self.result, self.original = group, samples, result, original
        self.fronts = Fronts(len(samples), grid.half, grid.steps)
        self.grid = grid
        self.matrices = _Matrices(group)

    def run(self) -> Generator[Task, Done, list[_Candidates]]:
        """March until every sample has a node or its grid is used up; return the nodes that change labels."""
        samples, fronts = self.samples, self.fronts
        near: list[_Candidates] = []
        yield from self._fill_metrics()
        edges = (fronts.metrics.diagonal(dim1=1, dim2=2).clamp(min=0).sqrt() * self.grid.steps)[: len(samples)]
        width = SHELL_WIDTH * edges.sum(1) / (edges > 0).sum(1).clamp(min=1)
        alive = width > 0
        self.result.reason[samples[~alive]] = NO_EFFECT
        while bool(alive.any()):
            resting = fronts.at_rest(alive)
            if bool(resting.any()):
                near.append((yield from self._query_shell(resting, alive)))
                fronts.bound += torch.where(resting, width, 0.0)
                used = torch.bincount(fronts.image[fronts.taken], minlength=len(samples))
                waiting = torch.zeros_like(alive)
                waiting[fronts.image[fronts.changed]] = True
                self.result.reason[samples[alive & (used >= MAX_NODES)]] = OUT_OF_NODES
                alive &= (used < MAX_NODES) & waiting
                continue
            nodes = fronts.expand(alive)
            yield from self._fill_metrics()
            if len(nodes):
                work = partial(_propose, fronts, nodes)
                proposed = yield Task(samples[fronts.image[nodes]], work, batch=NODES_PER_BATCH)
                fronts.update(nodes, proposed["distance"])
        found = samples[self._at_edge()]
        self.result.reason[found[self.result.reason[found] == FOOLED]] = AT_EDGE
        return near

    def _at_edge(self) -> Tensor:
        """Return whose fronts reached the edge of the grid (a mask): after half a turn there is nothing new."""
        fronts, open_ended = self.fronts, torch.tensor([part != "rotation" for part in self.group.parts])
        final = fronts.taken.nonzero()[:, 0]
        away = (fronts.grid_positions(fronts.index[final]) - fronts.half).abs()
        edge = ((away == fronts.half) & open_ended).any(1)
        reached = torch.zeros(len(self.samples), dtype=torch.bool)
        reached[fronts.image[final[edge]]] = True
        return reached

    def _query_shell(self, resting: Tensor, alive: Tensor) -> Generator[Task, Done, _Candidates]:
        """Query the final nodes of images that rest; return those whose label differs, and end their samples' march."""
        fronts, result = self.fronts, self.result
        nodes = fronts.take_final(resting)
        own = fronts.image[nodes]
        labels = yield from self._labels(nodes)
        result.queries.index_add_(0, self.samples[own], torch.ones_like(nodes))
        if self.original is None:  # the first nodes are the identity
            self.original = torch.full((len(self.samples),), NO_ANSWER)
            self.original[own] = labels
        original = self.original
        at_home = fronts.distance[nodes] == 0
        wrong = at_home & (labels != original[own]) | at_home & (labels == NO_ANSWER)
        if bool(wrong.any()):
            result.label[self.samples[own[wrong]]] = labels[wrong]
            reason = torch.where(labels[wrong] == NO_ANSWER, UNANSWERED, WRONG_WHEN_CLEAN)
            result.reason[self.samples[own[wrong]]] = reason
            alive[own[wrong]] = False
        new = (labels != original[own]) & (labels != NO_ANSWER) & alive[own]
        order = fronts.distance[nodes].argsort(stable=True)
        order = order[new[order]]
        where = self.samples[own[order]]
        result.reason[where] = FOOLED
        alive[own[order]] = False
        return _Candidates(where, fronts.coordinates(nodes[order]), labels[order], _ranks(where))

    def _labels(self, nodes: Tensor) -> Generator[Task, Done, Tensor]:
        rows, matrices = self.samples[self.fronts.image[nodes]], self.matrices.at(self.fronts, nodes)
        if not len(nodes):
            return torch.zeros(0, dtype=torch.int64)
        return (yield query_labels(rows, matrices))["label"]

    def _fill_metrics(self) -> Generator[Task, Done, None]:
        """Compute the metric at nodes that have none."""
        fronts, group = self.fronts, self.group
        nodes = fronts.fresh
        if not len(nodes):
            return
        rows, coordinates = self.samples[fronts.image[nodes]], fronts.coordinates(nodes)
        matrices = self.matrices.at(fronts, nodes)

        def do(stage: Stage, part: Tensor) -> Done:
            frames = stage.frames(rows[part])
            return {"products": jacobian_gram(frames.move(matrices[part]), frames, group)}

        computed = yield Task(rows, do)
        fronts.metrics[nodes] = metric(group, coordinates, computed["products"])
        fronts.fresh = nodes[:0]


def _propose(fronts: Fronts, nodes: Tensor, stage: Stage, part: Tensor) -> Done:
    return {"distance": fronts.propose(nodes[part])}


class _Matrices:
    """A cache of the matrices of nodes: the fronts of different images reach the same ones."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.index = torch.zeros(0, dtype=torch.int64)
        self.matrices = torch.zeros(0, 3, 3, dtype=torch.float64)

    def at(self, fronts: Fronts, nodes: Tensor) -> Tensor:
        """Return the matrices of nodes."""
        index = fronts.index[nodes]
        wanted, back = torch.unique(index, return_inverse=True)
        new = wanted[~torch.isin(wanted, self.index)]
        if len(new):
            coordinates = (fronts.grid_positions(new) - fronts.half) * fronts.steps
            order = torch.cat([self.index, new]).argsort()
            self.matrices = torch.cat([self.matrices, self.group.exp(coordinates)])[order]
            self.index = torch.cat([self.index, new])[order]
        return self.matrices[torch.searchsorted(self.index, wanted)][back]
