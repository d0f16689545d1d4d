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
from brinell.geometry.jacobian import flows, gram, jacobian

ETA = 0.05
LEAST = 0.02
_HALVINGS = 8
_MOST_STEPS = 20_000


def chords(frames: Frames, matrices: Tensor) -> Tensor:
    """The straight distance between moved images and their originals, over the norm: never longer than any path."""
    return apart(frames.moved(matrices), frames)


def apart(images: Tensor, frames: Frames) -> Tensor:
    """The straight distance of images from the frames' own, over the norm, float64 (N,)."""
    return _apart(images, frames.images) / _norms(frames)


def speeds(frames: Frames, group: Group, directions: Tensor) -> Tensor:
    """How much score a unit along directions (N, d) adds at first, (N,)."""
    products = gram(jacobian(frames.images, frames, flows(group, frames)))
    directions = directions.to(products)
    square = (directions[:, None] @ products @ directions[..., None])[:, 0, 0]
    return square.clamp(min=0).sqrt() / _norms(frames)


def scores(frames: Frames, group: Group, coordinates: Tensor, *, eta: float = ETA, least: float = LEAST) -> Tensor:
    """The length of the direct path to coordinates (N, d), over the norm, float64 (N,); 0 for an image of zeros."""
    device = frames.images.device
    coordinates = coordinates.to(device)
    length = coordinates.norm(dim=1)
    directions = coordinates / length.clamp(min=1e-12)[:, None]
    step = _steps(frames, group, directions, eta, least)
    whole = (length / step + 1e-9).floor().clamp(max=_MOST_STEPS)
    forward = group.exp(directions * step[:, None])
    place = torch.eye(3, dtype=torch.float64, device=device).expand_as(forward)
    before, total = frames.images, torch.zeros_like(length)
    for number in range(1, int(whole.max()) + 1 if len(whole) else 0):
        going = number <= whole
        place = torch.where(going[:, None, None], place @ forward, place)
        image = frames.moved(place)
        total += _apart(image, before)  # those that have arrived stand still
        before = image
    total += _apart(frames.moved(group.exp(coordinates)), before)
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
    """Go along unit directions (N, d) until the path's score is as `wanted` (R,), in increasing order.

    A ray ends where a step changes nothing any more (the image left the frame) or beyond a half turn. The step that
    passes a wanted score is halved again and again.
    """
    device = frames.images.device
    directions, wanted = directions.to(device), wanted.to(device, torch.float64)
    count, norms = len(directions), _norms(frames)
    step = _steps(frames, group, directions, eta, least)
    forward = group.exp(directions * step[:, None])
    place = torch.eye(3, dtype=torch.float64, device=device).expand_as(forward)
    before = frames.images
    total = torch.zeros(count, dtype=torch.float64, device=device)
    start = torch.full((count, len(wanted)), -1.0, dtype=torch.float64, device=device)  # steps before the one that passes
    level = torch.zeros_like(start)  # the score there
    start[:, wanted <= 0] = 0
    limit = 1 / (half_turns(group, directions) * step)
    going = torch.isfinite(norms) & (total < wanted.max())
    number = 0
    while number < _MOST_STEPS and bool(going.any()):
        place = torch.where(going[:, None, None], place @ forward, place)
        image = frames.moved(place)
        gained = _apart(image, before) / norms
        going = going & (gained > 0) & (number + 1 < limit)
        passed = going[:, None] & (start < 0) & ((total + gained)[:, None] >= wanted)
        start = torch.where(passed, float(number), start)
        level = torch.where(passed, total[:, None], level)
        total = torch.where(going, total + gained, total)
        going = going & (total < wanted.max())
        before, number = image, number + 1
    return _halved(frames, group, directions * step[:, None], wanted, start, level, step)


def _halved(
    frames: Frames, group: Group, steps: Tensor, wanted: Tensor, start: Tensor, level: Tensor, step: Tensor
) -> Rays:
    """The wanted scores inside the steps that pass them."""
    reached = start >= 0
    rows, which = reached.nonzero(as_tuple=True)
    own, vector = frames.at(rows), steps[rows]
    begin, short = start[rows, which], wanted[which] - level[rows, which]
    norms, origin = _norms(own), own.moved(group.exp(vector * begin[:, None]))
    low, high = torch.zeros_like(begin), torch.ones_like(begin)
    gained = torch.zeros_like(begin)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        gained = _apart(own.moved(group.exp(vector * (begin + middle)[:, None])), origin) / norms
        low, high = torch.where(gained < short, middle, low), torch.where(gained < short, high, middle)
    middle = torch.where(wanted[which] <= 0, 0.0, (low + high) / 2)
    gained = _apart(own.moved(group.exp(vector * (begin + middle)[:, None])), origin) / norms
    along, score = torch.zeros_like(start), torch.zeros_like(start)
    along[rows, which] = (begin + middle) * step[rows]
    score[rows, which] = level[rows, which] + gained
    return Rays(along, score, reached)


def _steps(frames: Frames, group: Group, directions: Tensor, eta: float, least: float) -> Tensor:
    if least <= 0:
        return torch.full((len(directions),), eta, dtype=torch.float64, device=directions.device)
    speed = speeds(frames, group, directions)
    return torch.where(speed > 0, (least / speed).clamp(min=eta, max=20 * eta), eta)


def _apart(these: Tensor, those: Tensor) -> Tensor:
    """L2 distances (N,) of images, float64."""
    distances: Tensor = (these - those).flatten(1).norm(dim=1).to(torch.float64)
    return distances


def _norms(frames: Frames) -> Tensor:
    """The images' norms, infinite for images of zeros: no motion changes them."""
    norms = frames.norms().to(torch.float64)
    return torch.where(norms > 0, norms, torch.inf)
