"""How far a motion takes an image: the length of the direct path, over the norm of the image.

The direct path from the identity to a motion goes along its coordinates; its length is the sum of the L2 distances between
images a step of eta apart (the paper's Eq. 17). `least` widens the steps of motions that change an image slowly, such as a
move of a large image by a twentieth of a pixel: a step then adds about `least` to the score, and no less. Published: 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.geometry.frames import Frames
from brinell.geometry.groups import Group, half_turns
from brinell.geometry.jacobian import products

ETA = 0.05
LEAST = 0.02
_REFINEMENTS = 4
_STRIDE = 16  # steps of a ray before it is looked whether it is far enough
_MOST_STEPS = 20_000
_TOGETHER = {"cpu": 1 << 18, "cuda": 1 << 27}  # values of the moved images that are made at once


def chords(frames: Frames, matrices: Tensor) -> Tensor:
    """The straight distance between moved images and their originals, over the norm: never longer than any path."""
    return apart(frames.moved(matrices), frames)


def apart(images: Tensor, frames: Frames) -> Tensor:
    """The straight distance of images from the frames' own, over the norm, float64 (N,)."""
    return _lengths(images - frames.images) / _norms(frames)


def speeds(frames: Frames, group: Group, directions: Tensor) -> Tensor:
    """How much score a unit along directions (N, d) adds at first, on the host (N,)."""
    own = products(frames.images, frames, group).cpu()
    square = (directions[:, None] @ own @ directions[..., None])[:, 0, 0]
    return square.clamp(min=0).sqrt() / _norms(frames).cpu()


def scores(
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
    each = _stride(frames, len(length))
    for first in range(0, int(number.max()) if len(number) else 0, each):
        rows = (number > first).nonzero()[:, 0]
        stops = torch.arange(first, min(first + each, int(number.max())) + 1, dtype=torch.float64)
        along = (stops * step[rows, None]).minimum(length[rows, None])
        gained = _gains(frames if len(rows) == len(length) else frames.at(rows), group, directions[rows], along)
        total.index_add_(0, rows.to(total.device), gained.sum(1))
    return total / _norms(frames)


@dataclass(frozen=True)
class Rays:
    """Where rays reach given scores: how far along each (N, R), the score there, and whether they get that far."""

    reach: Tensor
    scores: Tensor
    reached: Tensor


def reach(
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
    number = 0
    while number < _MOST_STEPS and bool(going.any()):
        rows = going.nonzero()[:, 0]
        stops = torch.arange(number, number + min(_STRIDE, _stride(frames, len(rows))) + 1, dtype=torch.float64)
        own = frames if len(rows) == count else frames.at(rows)
        gained = _gains(own, group, directions[rows], stops * step[rows, None]).cpu() / norms[rows, None]
        alive = ((gained > 0) & (stops[1:] < limit[rows, None])).cumprod(1).to(torch.bool)
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
        number += len(stops) - 1
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
    norms = _norms(frames)[:, None].cpu()
    share = (short / rise).clamp(0, 1)
    for _ in range(_REFINEMENTS):
        stops = torch.stack([begin, begin + share], -1) * step[:, None, None]
        parts = [_gains(frames, group, directions, own)[:, 0] for own in stops.unbind(1)]
        gained = torch.stack(parts, 1).cpu() / norms
        found, share = share, torch.where(gained > 0, share * short / gained, share).clamp(0, 1)
    return found, gained


def _gains(frames: Frames, group: Group, directions: Tensor, along: Tensor) -> Tensor:
    """The distances (N, K) between images that lie so far (N, K + 1) along directions (N, d), float64."""
    images = frames.moved(group.exp(directions[:, None] * along[..., None]))
    return _lengths((images[:, 1:] - images[:, :-1]).flatten(0, 1)).view(len(images), -1)


def _stride(frames: Frames, rays: int) -> int:
    """How many steps of so many rays are made at once."""
    return max(1, _TOGETHER.get(frames.images.device.type, 1 << 20) // max(1, rays * frames.images[:1].numel()))


def _steps(frames: Frames, group: Group, directions: Tensor, eta: float, least: float) -> Tensor:
    """The length of a step of each path, on the host (N,)."""
    if least <= 0:
        return torch.full((len(directions),), eta, dtype=torch.float64)
    speed = speeds(frames, group, directions)
    return torch.where(speed > 0, (least / speed).clamp(min=eta, max=20 * eta), eta)


def _lengths(images: Tensor) -> Tensor:
    """L2 norms (N,), float64."""
    lengths: Tensor = images.flatten(1).norm(dim=1).to(torch.float64)
    return lengths


def _norms(frames: Frames) -> Tensor:
    """The images' norms, infinite for images of zeros: no motion changes them."""
    norms = frames.norms().to(torch.float64)
    return torch.where(norms > 0, norms, torch.inf)
