"""Random motions of given scores, and a grid of motions: searches that need no gradient.

Directions are independent for every image and draw. In raw units, as published, a radian weighs as much as a pixel, so that
random motions are nearly all rotation and scale; `metric` directions are drawn so that every one of them changes the image
alike: v ~ N(0, (JᵀJ)⁻¹).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Generator
from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.draws import Draws, key
from brinell.lenses.method import NO_ANSWER, Done, Stage, Task
from brinell.motion.frames import Frames
from brinell.motion.geodesic import chords, geodesic_scores, trace_rays
from brinell.motion.groups import Group
from brinell.motion.jacobian import jacobian_gram

_PURPOSE = 0
NEAREST = 8  # fooling motions of the grid whose paths are measured at once
STOPS = 12  # of a path, for a bound of its length


@dataclass(frozen=True)
class Reached:
    """What random motions did, a row for each sample, draw and score, in this order.

    `reached` says whether the ray got as far as the score; where not, the other figures mean nothing.
    """

    sample: Tensor
    draw: Tensor
    wanted: Tensor
    motion: Tensor
    score: Tensor
    reached: Tensor
    label: Tensor


def random_motions(
    group: Group, count: int, wanted: Tensor, draws: int, *, whitened: bool, eta: float, least: float
) -> Generator[Task, Done, Reached]:
    """Move each sample along `draws` random rays to each of the `wanted` scores (R,), and look at it there."""
    samples = torch.arange(count).repeat_interleave(draws)
    numbers = torch.arange(draws).repeat(count)

    def go(stage: Stage, part: slice) -> Done:
        rows = samples[part]
        frames = stage.frames(rows)
        ways = normal(stage.seed, stage.ids[rows], group, numbers[part])
        if whitened:
            ways = _whitened(ways, frames, group)
        ways = ways / ways.norm(dim=1, keepdim=True)
        rays = trace_rays(frames, group, ways, wanted, eta=eta, least=least)
        motions = rays.reach[..., None] * ways[:, None]
        return {"motion": motions, "score": rays.scores, "reached": rays.reached}

    told = yield Task(len(samples), go)
    many = len(wanted)
    found = Reached(
        sample=samples.repeat_interleave(many),
        draw=numbers.repeat_interleave(many),
        wanted=wanted.repeat(len(samples)),
        motion=told["motion"].flatten(0, 1),
        score=told["score"].flatten(),
        reached=told["reached"].flatten(),
        label=torch.full((len(samples) * many,), -1),
    )
    there = found.reached.nonzero()[:, 0]
    if len(there):
        found.label[there] = yield from labels_of(group, found.sample[there], found.motion[there])
    return found


def normal(seed: int, ids: Tensor, group: Group, draws: Tensor) -> Tensor:
    """Independent normal numbers (N, d), named by seed, image, group and draw; on the host."""
    shares = Draws.of(key(seed, "motion", group.name), ids, draws).uniform(_PURPOSE, group.dimension)
    numbers: Tensor = torch.special.ndtri(shares)
    return numbers


def _whitened(ways: Tensor, frames: Frames, group: Group) -> Tensor:
    """Directions that change their images alike; unchanged where the metric says nothing."""
    own = jacobian_gram(frames.images, frames, group).cpu()
    values, vectors = torch.linalg.eigh(own)
    good = values > 1e-9 * values.amax(1, keepdim=True)
    inverse = torch.where(good, values.clamp(min=1e-300).rsqrt(), 0.0)
    found = (vectors @ (inverse * ways)[..., None])[..., 0]
    return torch.where(good.any(1, keepdim=True), found, ways)


def labels_of(group: Group, samples: Tensor, motions: Tensor) -> Generator[Task, Done, Tensor]:
    """The labels of samples under motions (N, d)."""
    matrices = group.exp(motions)

    def look(stage: Stage, part: slice) -> Done:
        rows = samples[part]
        return {"label": stage.scores(rows, matrices[part])[1]}

    return (yield Task(len(samples), look, images=len(samples)))["label"]


def parts_of(group: Group, motions: Tensor) -> Task:
    """What each coordinate of motions (N, d), one a sample, would add to the score alone, to first order."""

    def measure(stage: Stage, part: slice) -> Done:
        frames = stage.frames(torch.arange(part.start, part.stop))
        own = jacobian_gram(frames.images, frames, group)
        lengths = own.diagonal(dim1=1, dim2=2).clamp(min=0).sqrt() / frames.norms().clamp(min=1e-12)[:, None]
        return {"parts": lengths.cpu() * motions[part].abs()}

    return Task(len(motions), measure)


def grid_motions(group: Group, height: int, width: int, most: int) -> Tensor:
    """A grid over a group's coordinates, (P, d) without the identity: turns to 30°, moves to a tenth, scales to 1.2.

    It has as many points a coordinate as `most` in all allows, an odd number and at least 3.
    """
    far = {"rotation": math.pi / 6, "x": width / 10, "y": height / 10, "scale": math.log(1.2)}
    far |= {"stretch": math.log(1.2), "shear": 0.2, "b12": 0.2, "b21": 0.2, "b31": 0.2 / width, "b32": 0.2 / height}
    far |= {"b11": 0.06, "b22": 0.06}
    points = grid_points(group, most)
    steps = torch.linspace(-1, 1, points, dtype=torch.float64).tolist()
    share = torch.tensor(list(itertools.product(steps, repeat=group.dimension)), dtype=torch.float64)
    share = share[share.abs().amax(1) > 1e-9]
    return share * torch.tensor([far[part] for part in group.parts], dtype=torch.float64)


def grid_points(group: Group, most: int) -> int:
    """How many points a coordinate has."""
    points = int(most ** (1 / group.dimension) + 1e-9)
    return max(3, points - 1 + points % 2)


@dataclass
class Nearest:
    """The motion of the grid with the least score that changes a sample's label, (N,) each; infinite: none does."""

    score: Tensor
    motion: Tensor
    label: Tensor
    share: Tensor  # of the grid's motions that change the label
    silent: Tensor  # some motion got no answer


def grid_search(
    group: Group, original: Tensor, motions: Tensor, *, eta: float, least: float
) -> Generator[Task, Done, Nearest]:
    """Ask all motions of a grid; of those that change the label, the one with the least score."""
    count, many = len(original), len(motions)
    samples = torch.arange(count).repeat_interleave(many)
    matrices = group.exp(motions)
    which = torch.arange(many).repeat(count)

    def look(stage: Stage, part: slice) -> Done:
        rows = samples[part]
        frames, places = stage.frames(rows), matrices[which[part]]
        return {"label": stage.scores(rows, places)[1], "chord": chords(frames, places)}

    told = yield Task(len(samples), look, images=len(samples))
    labels = told["label"].view(count, many)
    silent = labels == NO_ANSWER
    fooling = (labels != original[:, None]) & ~silent
    bound = torch.where(fooling, told["chord"].view(count, many), torch.inf)
    found = Nearest(
        score=torch.full((count,), torch.inf, dtype=torch.float64),
        motion=torch.zeros(count, group.dimension, dtype=torch.float64),
        label=original.clone(),
        share=fooling.to(torch.float64).mean(1),
        silent=silent.any(1),
    )
    bounded = torch.zeros_like(fooling)
    while True:  # a path is never shorter than its bound: once the best is below all others', it is the least
        near = bound.topk(min(NEAREST, many), largest=False)
        rows, places = (near.values < found.score[:, None]).nonzero(as_tuple=True)
        if not len(rows):
            return found
        asked = near.indices[rows, places]
        rough = ~bounded[rows, asked]
        if bool(rough.any()):  # a closer bound first
            rows, asked = rows[rough], asked[rough]
            bound[rows, asked] = yield from _paths(group, rows, motions[asked], eta, least, STOPS)
            bounded[rows, asked] = True
            continue
        length = yield from _paths(group, rows, motions[asked], eta, least)
        bound[rows, asked] = torch.inf
        for row, place, score in zip(rows.tolist(), asked.tolist(), length.tolist(), strict=True):
            if score < found.score[row]:
                found.score[row], found.motion[row], found.label[row] = score, motions[place], labels[row, place]


def _paths(
    group: Group, rows: Tensor, motions: Tensor, eta: float, least: float, most: int | None = None
) -> Generator[Task, Done, Tensor]:
    """The scores of motions of samples, or with at `most` so many stops a bound of them."""

    def measure(stage: Stage, part: slice) -> Done:
        return {"score": geodesic_scores(stage.frames(rows[part]), group, motions[part], eta=eta, least=least, most=most)}

    return (yield Task(len(rows), measure))["score"]
