"""How far a motion takes an image: the length of the direct path, over the norm of the image.

The direct path from the identity to a motion goes along its coordinates; its length is the sum of the L2 distances between
images a step of eta apart (the paper's Eq. 17). `least` widens the steps of motions that change an image slowly, such as a
move of a large image by a twentieth of a pixel: a step then adds about `least` to the score, and no less. Published: 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.motion.frames import Frames
from brinell.motion.groups import Group, half_turns
from brinell.motion.jacobian import jacobian_gram

ETA = 0.05
LEAST = 0.02
_REFINEMENTS = 4
_STRIDE = 16  # steps of a ray before it is looked whether it is far enough
_MOST_STEPS = 20_000
_TOGETHER = {"cpu": 1 << 18, "cuda": 1 << 27}  # values of the moved images that are made at once


def chords(frames: Frames, matrices: Tensor) -> Tensor:
    """The straight distance between moved images and their originals, over the norm: never longer than any path."""
    return relative_distances(frames.move(matrices), frames)


def relative_distances(images: Tensor, frames: Frames) -> Tensor:
    """The straight distance of images from the frames' own, over the norm, float64 (N,)."""
    return _lengths(images - frames.images) / _norms(frames)


def initial_speeds(frames: Frames, group: Group, directions: Tensor) -> Tensor:
    """How much score a unit along directions (N, d) adds at first, on the host (N,)."""
    own = jacobian_gram(frames.images, frames, group).cpu()
    square = (directions[:, None] @ own @ directions[..., None])[:, 0, 0]
    return square.clamp(min=0).sqrt() / _norms(frames).cpu()


def geodesic_scores(
    frames: Frames, group: Group, coordinates: Tensor, *, eta: float = ETA, least: float = LEAST, most: int | None = None
) -> Tensor:
    """The length of the direct path to coordinates (N, d), over the norm, float64 (N,); 0 for an image of zeros.

    With at `most` so many stops on the way, some of the path's, it is cheaper and never above the whole score.
    """
    coordinates = coordinates.cpu()
    length = coordinates.norm(dim=1)
    directions = coordinates / length.clamp(min=1e-12)[:, None]
    step = _steps(frames, group, directions, eta, least)
    number = (length / step - 1e-9).ceil().clamp(1, _MOST_STEPS)
    if most is not None:
        step = step * (number / most).ceil()
        number = (length / step - 1e-9).ceil()
    total = torch.zeros(len(length), dtype=torch.float64, device=frames.images.device)
    walk = _Walk(frames, group, directions)
    each = walk.stride
    for first in range(0, int(number.max()) if len(number) else 0, each):
        walk = walk.at(number[walk.rows] > first)
        rows = walk.rows
        stops = torch.arange(first, min(first + each, int(number[rows].max())), dtype=torch.float64) + 1
        gained = walk.on((stops * step[rows, None]).minimum(length[rows, None]))
        total.index_add_(0, rows.to(total.device), gained.sum(1))
    return total / _norms(frames)


@dataclass(frozen=True)
class Rays:
    """Where rays reach given scores: how far along each (N, R), the score there, and whether they get that far."""

    reach: Tensor
    scores: Tensor
    reached: Tensor


def trace_rays(
    frames: Frames, group: Group, directions: Tensor, wanted: Tensor, *, eta: float = ETA, least: float = LEAST
) -> Rays:
    """Go along unit directions (N, d) until the path's score is as `wanted` (R,), in increasing order; on the host.

    A ray ends where a step changes nothing any more (the image left the frame) or beyond a half turn. The step that
    passes a wanted score is shortened.
    """
    directions, wanted = directions.cpu(), wanted.to("cpu", torch.float64)
    count, norms = len(directions), _norms(frames).cpu()
    step = _steps(frames, group, directions, eta, least)
    total = torch.zeros(count, dtype=torch.float64)
    start = torch.full((count, len(wanted)), -1.0, dtype=torch.float64)  # steps before the one that passes
    level, rise = torch.zeros_like(start), torch.ones_like(start)  # the score there, and what the step adds
    start[:, wanted <= 0] = 0
    limit = 1 / (half_turns(group, directions) * step)
    going = torch.isfinite(norms) & (total < wanted.max())
    number, walk = 0, _Walk(frames, group, directions)
    while number < _MOST_STEPS and bool(going.any()):
        walk = walk.at(going[walk.rows])
        rows = walk.rows
        stops = torch.arange(number, number + min(_STRIDE, walk.stride), dtype=torch.float64) + 1
        gained = walk.on(stops * step[rows, None]).cpu() / norms[rows, None]
        alive = ((gained > 0) & (stops < limit[rows, None])).cumprod(1).to(torch.bool)
        after = total[rows, None] + (gained * alive).cumsum(1)
        passed = alive[..., None] & (after[..., None] >= wanted)
        first = passed.to(torch.int8).argmax(1)
        new = passed.any(1) & (start[rows] < 0)
        before = torch.cat([total[rows, None], after], 1).gather(1, first)
        start[rows] = torch.where(new, number + first, start[rows])
        level[rows] = torch.where(new, before, level[rows])
        rise[rows] = torch.where(new, gained.gather(1, first), rise[rows])
        total[rows] = after[:, -1]
        going[rows] = alive[:, -1] & (after[:, -1] < wanted.max())
        number += len(stops)
    begin, reached = start.clamp(min=0), start >= 0
    share, gained = _refined(frames, group, directions, step, begin, wanted - level, rise)
    along, score = (begin + share) * step[:, None], level + gained
    return Rays(torch.where(reached, along, 0.0), torch.where(reached, score, 0.0), reached)


def _refined(
    frames: Frames, group: Group, directions: Tensor, step: Tensor, begin: Tensor, short: Tensor, rise: Tensor
) -> tuple[Tensor, Tensor]:
    """What share (N, R) of the step after `begin` steps adds as much as is still `short`; and what it adds.

    The whole step adds `rise`, nearly in proportion.
    """
    norms, found, gains = _norms(frames).cpu(), [], []
    for start, wanted, whole in zip(begin.unbind(1), short.unbind(1), rise.unbind(1), strict=True):
        origin = frames.move(group.exp(directions * (start * step)[:, None]))
        share = (wanted / whole).clamp(0, 1)
        for _ in range(_REFINEMENTS):
            there = frames.move(group.exp(directions * ((start + share) * step)[:, None]))
            last, gained = share, _lengths(there - origin).cpu() / norms
            share = torch.where(gained > 0, share * wanted / gained, share).clamp(0, 1)
        found.append(last)
        gains.append(gained)
    return torch.stack(found, 1), torch.stack(gains, 1)


class _Walk:
    """Images on their way along directions (N, d); `rows` are their numbers."""

    def __init__(self, frames: Frames, group: Group, directions: Tensor) -> None:
        self.frames, self.group, self.directions = frames, group, directions
        self.rows = torch.arange(len(directions))
        self.last = frames.images

    @property
    def stride(self) -> int:
        """How many steps are made at once."""
        return max(1, _TOGETHER.get(self.last.device.type, 1 << 20) // max(1, self.last.numel()))

    def at(self, which: Tensor) -> _Walk:
        """Some of them (a mask)."""
        if bool(which.all()):
            return self
        places = which.nonzero()[:, 0]
        some = _Walk(self.frames.select(places), self.group, self.directions[places])
        some.rows, some.last = self.rows[places], self.last[places.to(self.last.device)]
        return some

    def on(self, along: Tensor) -> Tensor:
        """Go on to so far (N, K) along the directions; the distances from stop to stop (N, K), float64."""
        images = self.frames.move(self.group.exp(self.directions[:, None] * along[..., None]))
        between = _lengths((images[:, 1:] - images[:, :-1]).flatten(0, 1)).view(len(images), -1)
        gained = torch.cat([_lengths(images[:, 0] - self.last)[:, None], between], 1)
        self.last = images[:, -1]
        return gained


def _steps(frames: Frames, group: Group, directions: Tensor, eta: float, least: float) -> Tensor:
    """The length of a step of each path, on the host (N,)."""
    if least <= 0:
        return torch.full((len(directions),), eta, dtype=torch.float64)
    speed = initial_speeds(frames, group, directions)
    return torch.where(speed > 0, (least / speed).clamp(min=eta, max=20 * eta), eta)


def _lengths(images: Tensor) -> Tensor:
    """L2 norms (N,), float64."""
    lengths: Tensor = images.flatten(1).norm(dim=1).to(torch.float64)
    return lengths


def _norms(frames: Frames) -> Tensor:
    """The images' norms, infinite for images of zeros: no motion changes them."""
    norms = frames.norms().to(torch.float64)
    return torch.where(norms > 0, norms, torch.inf)
