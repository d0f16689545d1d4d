"""Geodesic scores of motions (ManiFool, CVPR 2018): the length of the direct path, divided by the norm of the image.

The direct path from the identity to a motion runs along its coordinates; its length is the sum of the L2 distances between
images that are a step of `eta` apart (Eq. 17). `min_change` widens the steps of motions that change an image slowly, such
as a shift of a large image by a twentieth of a pixel, so that a step adds about that much to the score; the paper has 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.motion.frames import Frames
from brinell.motion.groups import Group, half_turns
from brinell.motion.jacobian import jacobian_gram
from brinell.motion.paths import Paths, lengths_of, paths_along

ETA = 0.05
MIN_CHANGE = 0.02
_REFINEMENTS = 4
_MOST_STEPS = 20_000


def chords(frames: Frames, matrices: Tensor) -> Tensor:
    """Return the straight distance of moved images from their originals, over the norm: a lower bound of any path."""
    return relative_distances(frames.move(matrices), frames)


def relative_distances(images: Tensor, frames: Frames) -> Tensor:
    """Return the L2 distance of images from the frames' images, over the norm, float64 (N,)."""
    return lengths_of(images - frames.images) / _norms(frames)


def initial_speeds(frames: Frames, group: Group, directions: Tensor) -> Tensor:
    """Return the derivative of the score along directions (N, d) at the identity, on the host (N,)."""
    gram = jacobian_gram(frames.images, frames, group).cpu()
    square = (directions[:, None] @ gram @ directions[..., None])[:, 0, 0]
    return square.clamp(min=0).sqrt() / _norms(frames).cpu()


def geodesic_scores(
    frames: Frames,
    group: Group,
    coordinates: Tensor,
    *,
    eta: float = ETA,
    min_change: float = MIN_CHANGE,
    most: int | None = None,
) -> Tensor:
    """Return the length of the direct path to coordinates (N, d), over the norm, on the host (N,); 0 for an image of zeros.

    With `most`, only that many stops of the path are used, which is cheaper and gives a lower bound of the score.
    """
    coordinates = coordinates.cpu()
    length = coordinates.norm(dim=1)
    directions = coordinates / length.clamp(min=1e-12)[:, None]
    step = _step_lengths(frames, group, directions, eta, min_change)
    number = (length / step - 1e-9).ceil().clamp(1, _MOST_STEPS)
    if most is not None:
        step = step * (number / most).ceil()
        number = (length / step - 1e-9).ceil()
    total = torch.zeros(len(length), dtype=torch.float64)
    paths = paths_along(frames, group, directions)
    stride = paths.stride
    for first in range(0, int(number.max()) if len(number) else 0, stride):
        paths = paths.select(number[paths.rows] > first)
        rows = paths.rows
        stops = torch.arange(first, min(first + stride, int(number[rows].max())), dtype=torch.float64) + 1
        gained = paths.advance((stops * step[rows, None]).minimum(length[rows, None])).cpu()
        total[rows] = _running_totals(total[rows], torch.where(stops <= number[rows, None], gained, 0.0))[:, -1]
    return total / _norms(frames).cpu()


@dataclass(frozen=True)
class Rays:
    """Where rays reach wanted scores: the distance along each ray (N, R), the score there, and whether it is reached."""

    reach: Tensor
    scores: Tensor
    reached: Tensor


def trace_rays(
    frames: Frames, group: Group, directions: Tensor, wanted: Tensor, *, eta: float = ETA, min_change: float = MIN_CHANGE
) -> Rays:
    """Follow unit directions (N, d) until the score of the path reaches each of `wanted` (R,), in increasing order.

    A ray ends where a step no longer changes the image (it has left the frame) or beyond a half turn. The step that passes
    a wanted score is shortened to reach it. Results are on the host.
    """
    directions, wanted = directions.cpu(), wanted.to("cpu", torch.float64)
    count, norms = len(directions), _norms(frames).cpu()
    step = _step_lengths(frames, group, directions, eta, min_change)
    total = torch.zeros(count, dtype=torch.float64)
    start = torch.full((count, len(wanted)), -1.0, dtype=torch.float64)  # number of steps before the one that passes
    level, rise = torch.zeros_like(start), torch.ones_like(start)  # the score there, and the gain of that step
    start[:, wanted <= 0] = 0
    limit = 1 / (half_turns(group, directions) * step)
    going = torch.isfinite(norms) & (total < wanted.max())
    number, whole = 0, paths_along(frames, group, directions)
    paths = whole
    while number < _MOST_STEPS and bool(going.any()):
        paths = paths.select(going[paths.rows])
        rows = paths.rows
        stops = torch.arange(number, number + min(paths.checked, paths.stride), dtype=torch.float64) + 1
        gained = paths.advance(stops * step[rows, None]).cpu() / norms[rows, None]
        alive = ((gained > 0) & (stops < limit[rows, None])).cumprod(1).to(torch.bool)
        after = _running_totals(total[rows], gained * alive)
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
    share, gained = _refine(whole, norms, step, begin, wanted - level, rise)
    along, score = (begin + share) * step[:, None], level + gained
    return Rays(torch.where(reached, along, 0.0), torch.where(reached, score, 0.0), reached)


def _refine(paths: Paths, norms: Tensor, step: Tensor, begin: Tensor, short: Tensor, rise: Tensor) -> tuple[Tensor, Tensor]:
    """Return the share (N, R) of the step after `begin` steps whose gain is `short`, and its actual gain."""
    if paths.levels:
        return _refine_level(paths, norms[:, None], step[:, None], begin, short, rise)
    levels = zip(begin.unbind(1), short.unbind(1), rise.unbind(1), strict=True)
    shares, gains = zip(*(_refine_level(paths, norms, step, *level) for level in levels), strict=True)
    return torch.stack(shares, 1), torch.stack(gains, 1)


def _refine_level(
    paths: Paths, norms: Tensor, step: Tensor, start: Tensor, wanted: Tensor, whole: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the same of one wanted score, or of all of them. A `whole` step's gains are nearly proportional to shares."""
    apart = paths.leave(start * step)
    share = (wanted / whole).clamp(0, 1)
    for _ in range(_REFINEMENTS):
        last, gained = share, apart((start + share) * step).cpu() / norms
        share = torch.where(gained > 0, share * wanted / gained, share).clamp(0, 1)
    return last, gained


def _step_lengths(frames: Frames, group: Group, directions: Tensor, eta: float, min_change: float) -> Tensor:
    """Return the step length of each path, on the host (N,)."""
    if min_change <= 0:
        return torch.full((len(directions),), eta, dtype=torch.float64)
    speed = initial_speeds(frames, group, directions)
    return torch.where(speed > 0, (min_change / speed).clamp(min=eta, max=20 * eta), eta)


def _running_totals(start: Tensor, gained: Tensor) -> Tensor:
    """Return the totals (N, K) after each of the gains, added one by one: the same however many are computed at once."""
    return torch.cat([start[:, None], gained], 1).cumsum(1)[:, 1:]


def _norms(frames: Frames) -> Tensor:
    """Return the norms of images; infinite for images of zeros, which no motion changes."""
    norms = frames.norms().to(torch.float64)
    return torch.where(norms > 0, norms, torch.inf)
