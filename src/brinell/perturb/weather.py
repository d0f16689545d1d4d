"""Fog and snow (seed 3). One weather an image: more severity is more of the same fog and flakes."""

from __future__ import annotations

from functools import cache

import cv2
import numpy as np
import torch
from torch import Tensor

from brinell.draws import Draws
from brinell.perturb.papers import ZHONG_2020
from brinell.perturb.property import PropertyFacts, per_image, pixel_property

POINTS = 999  # the authors' thousand without 0
FLAKES = 100  # at severity 1
FOG, FOG_MOST = 1.0, 3.5  # white added, in units of the range, at severities 0 and 1
DECAY, DECAY_LEAST = 2.3, 1.0  # how much less random each octave of fog is than the last


def _unless_0(severities: Tensor, amount: Tensor) -> Tensor:
    """These amounts don't begin at 0, but severity 0 is the clean image."""
    return torch.where(severities[:, 0] == 0, 0.0, amount)


def _thickness(severities: Tensor) -> Tensor:
    return FOG + (FOG_MOST - FOG) * severities[:, 0]


@pixel_property(
    "fog",
    PropertyFacts(
        "fog", "weather", "% white", lambda s, h, w: _unless_0(s, 100 * _thickness(s)), points=POINTS, source=ZHONG_2020
    ),
)
def fog(images: Tensor, severities: Tensor, draws: Draws) -> Tensor:
    """(x + p·F)·m/(m + p): a plasma F of values in [0, 1] added, and the whole scaled so that the brightest value m stays.

    p = 1 + 2.5e, and each octave of F is 2.3 - 1.3e times less random than the last. The least fog is strong already.
    """
    decay = DECAY + (DECAY_LEAST - DECAY) * severities[:, 0]
    # the authors multiply their random term by its own width: it falls with the square
    white = per_image(255 * _thickness(severities), images)
    brightest = images.amax((1, 2, 3), keepdim=True)
    plasma = _plasma(draws, images, 1 / decay**2).mul_(white)
    return images.add_(plasma).mul_(brightest / (brightest + white))


@pixel_property(
    "fog",
    PropertyFacts("fog", "weather", "% white", lambda s, h, w: 100 * FOG_MOST * s[:, 0], points=POINTS, source=ZHONG_2020),
    variant="equations",
)
def fog_as_written(images: Tensor, severities: Tensor, draws: Draws) -> Tensor:
    """Eq. 10: x + e·κ·DS(e·γ), the plasma's octaves each e·γ times as random as the last.

    The paper gives no values: κ = 3.5 and γ = 1 are what the authors' code has at e = 1.
    """
    plasma = _plasma(draws, images, severities[:, 0])
    return images.add_(plasma.mul_(per_image(255 * FOG_MOST * severities[:, 0], images)))


def _plasma(draws: Draws, images: Tensor, ratio: Tensor) -> Tensor:
    """Diamond-square maps in [0, 1], float32 (B, 1, H, W): the corner of a torus whose side is a power of two.

    Every octave fills in the middles of squares and then of diamonds: a mean of four and a random term, whose width is
    `ratio` (B,) times that of the octave before.
    """
    batch, _, height, width = images.shape
    octaves = (max(height, width) - 1).bit_length()
    noise = (draws.bits(0, 4**octaves - 1) >> 8).to(torch.float32)
    widths = (ratio[:, None] ** torch.arange(octaves)).to(torch.float32).to(images.device)
    corners = torch.zeros(batch, 1, 1, device=images.device)
    for octave in range(octaves):
        side = 2**octave
        term = noise[:, side**2 - 1 : 4 * side**2 - 1].view(batch, 3, side, side) * widths[:, octave, None, None, None]
        below = corners.roll(-1, 1) + corners
        right = corners.roll(-1, 2) + corners
        middles = (below.roll(-1, 2) + below).mul_(0.25).add_(term[:, 0])
        filled = torch.empty(batch, side, 2, side, 2, device=images.device)
        filled[:, :, 0, :, 0] = corners
        filled[:, :, 1, :, 1] = middles
        filled[:, :, 0, :, 1] = (middles.roll(1, 1) + middles).add_(right).mul_(0.25).add_(term[:, 1])
        filled[:, :, 1, :, 0] = (middles.roll(1, 2) + middles).add_(below).mul_(0.25).add_(term[:, 2])
        corners = filled.view(batch, 2 * side, 2 * side)
    low, high = corners.amin((1, 2))[:, None, None, None], corners.amax((1, 2))[:, None, None, None]
    return (corners[:, None, :height, :width] - low).div_(high - low)


def _flakes(severities: Tensor, height: int = 0, width: int = 0) -> Tensor:
    return _unless_0(severities, (1 + severities[:, 0] * (FLAKES - 1)).floor())


@pixel_property("snow", PropertyFacts("snow", "weather", "flakes", _flakes, points=POINTS, source=ZHONG_2020))
def snow(images: Tensor, severities: Tensor, draws: Draws) -> Tensor:
    """1 to 100 flakes, each a disc with a radius of √(0.1·min(h, w)) smeared along 45°; where they overlap, they add up.

    The n-th flake of an image always falls on the same place.
    """
    batch, _, height, width = images.shape
    flake, length = flake_counts(height, width)
    rows, columns = flake.nonzero(as_tuple=True)
    top = draws.below(0, FLAKES, height - len(flake))
    left = draws.below(1, FLAKES, max(1, width - len(flake)))
    offsets = (rows * width + columns).to(images.device)
    places = (top * width + left)[:, :, None] + offsets
    fallen = torch.arange(FLAKES) < _flakes(severities)[:, None]
    values = fallen.to(torch.float32).to(images.device)[:, :, None] * flake[rows, columns].to(images.device)
    # sums of whole numbers: their order doesn't matter
    counts = torch.zeros(batch, height * width, device=images.device)
    counts.scatter_add_(1, places.flatten(1), values.flatten(1))
    return images.add_(counts.view(batch, 1, height, width).mul_(255 / length))


@cache
def flake_counts(height: int, width: int) -> tuple[Tensor, int]:
    """A flake of (h/10)² pixels in parts of full scale, and how many parts that is: the pixels of the line that smears it.

    At 224×224 that is 22×22 pixels, a radius of 4.7, a line of 9 pixels, and 7/9 of full scale at the brightest.
    """
    side = max(1, min(height // 10, width))
    middle = side // 2
    row = np.arange(side)[:, None] - middle
    disc = (row**2 + row.T**2 <= 0.1 * min(height, width)).astype(np.float64)
    length = max(1, int(0.9 * middle))
    smeared = cv2.filter2D(disc, -1, np.eye(length)[::-1].copy())
    return torch.from_numpy(smeared.round()).to(torch.float32), length
