"""Searches without gradients: random motions of given scores, and a fixed grid of motions.

Directions are independent for every image and draw. In raw units, as published, a radian weighs as much as a pixel, so that
random motions are nearly all rotation and scale; `metric` directions are drawn so that all of them change the image
equally: v ~ N(0, (JᵀJ)⁻¹).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from brinell.draws import Draws, key
from brinell.lenses.geometry.search import PathSteps, query_motions, score_motions
from brinell.lenses.method import NO_ANSWER, Done, Stage, Task
from brinell.motion.frames import Frames
from brinell.motion.geodesic import chords, trace_rays
from brinell.motion.groups import Group
from brinell.motion.jacobian import jacobian_gram

_PURPOSE = 0
NEAREST = 8  # fooling motions of the grid whose paths are measured at once
STOPS = 12  # of a path, for a lower bound of its length
RAYS = 1024  # traced at a time: many enough for full batches of queries, few enough that most are traced beside queries


# ---- random motions ----


@dataclass(frozen=True)
class RandomMotions:
    """What random motions did: a row for each sample, draw and score, in this order.

    `reached` is whether the ray reached the `wanted` score; where it did not, the other columns have no meaning.
    """

    sample: Tensor
    draw: Tensor
    level: Tensor  # index of the wanted score
    wanted: Tensor
    motion: Tensor
    score: Tensor
    reached: Tensor
    label: Tensor


def random_motions(
    group: Group, chosen: Tensor, *, wanted: Tensor, whitened: bool, path: PathSteps, sizes: Tensor | None = None
) -> Generator[Task | tuple[Task, ...], Any, RandomMotions]:
    """Move samples along random rays to some of the `wanted` scores (R,), and query their labels there.

    `chosen` (bool (N, draws, R)) says which scores of which draws. While the labels of some rays are queried, the next ones
    are traced: by the shapes of images, whose heights and widths are `sizes` (N, 2), as a batch holds images of one canvas.
    """
    samples, numbers = chosen.any(2).nonzero(as_tuple=True)
    trace = _Tracing(group, samples, numbers, wanted, whitened, path)
    shapes = torch.ones(len(chosen)) if sizes is None else sizes[:, 0] / sizes[:, 1]
    order = shapes[samples].argsort(stable=True)
    some = torch.split(order, RAYS)
    found, owners, traced = [], [], (yield trace.task(some[0]))
    for number, (rays, following) in enumerate(itertools.zip_longest(some, some[1:])):
        ray, level = chosen[samples[rays], numbers[rays]].nonzero(as_tuple=True)
        moved = RandomMotions(
            sample=samples[rays][ray],
            draw=numbers[rays][ray],
            level=level,
            wanted=wanted[level],
            motion=traced["motion"][ray, level],
            score=traced["score"][ray, level],
            reached=traced["reached"][ray, level],
            label=torch.full((len(ray),), -1),
        )
        found.append(moved)
        owners.append(rays[ray])
        there = moved.reached.nonzero()[:, 0]
        queries = [query_motions(group, moved.sample[there], moved.motion[there])] if len(there) else []
        ahead = [] if following is None else [trace.task(following)]
        ended = len(chosen) - len(torch.unique(samples[order[number * RAYS :]]))
        tasks = tuple(replace(task, ended=ended) for task in queries + ahead)
        done: tuple[Done, ...] = (yield tasks) if tasks else ()
        if queries:
            moved.label[there] = done[0]["label"]
        traced = done[-1] if ahead else {}
    back = torch.cat(owners).argsort(stable=True)
    columns = {each.name: torch.cat([getattr(moved, each.name) for moved in found])[back] for each in fields(RandomMotions)}
    return RandomMotions(**columns)


@dataclass(frozen=True)
class _Tracing:
    """Rays to trace: of `samples`, with the `numbers` of their draws."""

    group: Group
    samples: Tensor
    numbers: Tensor
    wanted: Tensor
    whitened: bool
    path: PathSteps

    def task(self, some: Tensor) -> Task:
        """Return the task of finding where some of the rays reach the wanted scores."""
        samples, numbers = self.samples[some], self.numbers[some]

        def do(stage: Stage, part: Tensor) -> Done:
            rows = samples[part]
            frames = stage.frames(rows)
            directions = draw_directions(stage.seed, stage.ids[rows], self.group, numbers[part])
            if self.whitened:
                directions = _whiten(directions, frames, self.group)
            directions = directions / directions.norm(dim=1, keepdim=True)
            eta, min_change = self.path.eta, self.path.min_change
            rays = trace_rays(frames, self.group, directions, self.wanted, eta=eta, min_change=min_change)
            motions = rays.reach[..., None] * directions[:, None]
            return {"motion": motions, "score": rays.scores, "reached": rays.reached}

        return Task(samples, do)


def draw_directions(seed: int, ids: Tensor, group: Group, draws: Tensor) -> Tensor:
    """Return independent normal numbers (N, d), named by seed, image, group and draw; on the host."""
    shares = Draws.of(key(seed, "motion", group.name), ids, draws).uniform(_PURPOSE, group.dimension)
    numbers: Tensor = torch.special.ndtri(shares)
    return numbers


def _whiten(directions: Tensor, frames: Frames, group: Group) -> Tensor:
    """Return directions that change their images equally; unchanged where the metric is zero."""
    own = jacobian_gram(frames.images, frames, group).cpu()
    values, vectors = torch.linalg.eigh(own)
    good = values > 1e-9 * values.amax(1, keepdim=True)
    inverse = torch.where(good, values.clamp(min=1e-300).rsqrt(), 0.0)
    whitened = (vectors @ (inverse * directions)[..., None])[..., 0]
    return torch.where(good.any(1, keepdim=True), whitened, directions)


def measure_parts(group: Group, motions: Tensor) -> Task:
    """Return the task of measuring what each coordinate of motions (N, d) would add to the score alone, to first order."""

    def do(stage: Stage, part: Tensor) -> Done:
        frames = stage.frames(part)
        own = jacobian_gram(frames.images, frames, group)
        lengths = own.diagonal(dim1=1, dim2=2).clamp(min=0).sqrt() / frames.norms().clamp(min=1e-12)[:, None]
        return {"parts": lengths.cpu() * motions[part].abs()}

    return Task(torch.arange(len(motions)), do)


# ---- a grid of motions ----


def grid_motions(group: Group, height: int, width: int, limit: int) -> Tensor:
    """Return a grid over a group's coordinates, (P, d) without the identity: 30° of rotation, a tenth of a side, scale 1.2.

    It has as many points per coordinate as a `limit` of motions allows, an odd number and at least 3.
    """
    reach = {"rotation": math.pi / 6, "x": width / 10, "y": height / 10, "scale": math.log(1.2)}
    reach |= {"stretch": math.log(1.2), "shear": 0.2, "b12": 0.2, "b21": 0.2, "b31": 0.2 / width, "b32": 0.2 / height}
    reach |= {"b11": 0.06, "b22": 0.06}
    points = grid_points(group, limit)
    steps = torch.linspace(-1, 1, points, dtype=torch.float64).tolist()
    share = torch.tensor(list(itertools.product(steps, repeat=group.dimension)), dtype=torch.float64)
    share = share[share.abs().amax(1) > 1e-9]
    return share * torch.tensor([reach[part] for part in group.parts], dtype=torch.float64)


def grid_points(group: Group, limit: int) -> int:
    """Return the number of points per coordinate."""
    points = int(limit ** (1 / group.dimension) + 1e-9)
    return max(3, points - 1 + points % 2)


@dataclass
class NearestMotion:
    """The motion of the grid with the smallest score that changes a sample's label, (N,) each; infinite: none does."""

    score: Tensor
    motion: Tensor
    label: Tensor
    share: Tensor  # of the grid's motions that change the label
    unanswered: Tensor  # some motion got no answer


def grid_search(group: Group, original: Tensor, motions: Tensor, path: PathSteps) -> Generator[Task, Done, NearestMotion]:
    """Query all motions of a grid and return the one with the smallest score that changes the label."""
    count, many = len(original), len(motions)
    samples = torch.arange(count).repeat_interleave(many)
    matrices = group.exp(motions)
    which = torch.arange(many).repeat(count)

    def do(stage: Stage, part: Tensor) -> Done:
        rows = samples[part]
        frames, moves = stage.frames(rows), matrices[which[part]]
        return {"label": stage.scores(rows, moves)[1], "chord": chords(frames, moves)}

    answers = yield Task(samples, do, queries=True)
    labels = answers["label"].view(count, many)
    silent = labels == NO_ANSWER
    fooling = (labels != original[:, None]) & ~silent
    bound = torch.where(fooling, answers["chord"].view(count, many), torch.inf)
    nearest = NearestMotion(
        score=torch.full((count,), torch.inf, dtype=torch.float64),
        motion=torch.zeros(count, group.dimension, dtype=torch.float64),
        label=original.clone(),
        share=fooling.to(torch.float64).mean(1),
        unanswered=silent.any(1),
    )
    bounded = torch.zeros_like(fooling)
    while True:  # a path is never shorter than its bound: once the best is below all other bounds, it is the shortest
        near = bound.topk(min(NEAREST, many), largest=False)
        rows, columns = (near.values < nearest.score[:, None]).nonzero(as_tuple=True)
        if not len(rows):
            return nearest
        chosen = near.indices[rows, columns]
        rough = ~bounded[rows, chosen]
        if bool(rough.any()):  # a closer bound first
            rows, chosen = rows[rough], chosen[rough]
            bound[rows, chosen] = (yield score_motions(group, rows, motions[chosen], path, STOPS))["score"]
            bounded[rows, chosen] = True
            continue
        scores = (yield score_motions(group, rows, motions[chosen], path))["score"]
        bound[rows, chosen] = torch.inf
        for row, index, score in zip(rows.tolist(), chosen.tolist(), scores.tolist(), strict=True):
            if score < nearest.score[row]:
                nearest.score[row], nearest.motion[row], nearest.label[row] = score, motions[index], labels[row, index]
