"""Fog and snow (DSN 2020, Zhong, Hu and Chen): one random field per image, which the severity thickens."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import cv2
import numpy as np
import torch
from torch import Tensor

from brinell.draws import Draws
from brinell.kernels import kernels_for
from brinell.perturb.levels import PerImage, blend, per_image
from brinell.perturb.papers import ZHONG_2020
from brinell.perturb.property import PropertyFacts, pixel_property
from brinell.resizing.resample import to_device

POINTS = 999  # the authors' 1000 severities without 0
FLAKES = 100  # at severity 1
FOG, FOG_MOST = 1.0, 3.5  # white added at severities 0 and 1, as a multiple of the range
STANDARD_RATIO = 0.25  # each octave of standard fog is this much as random as the one before: a decay of 2, squared
DECAY, DECAY_LEAST = 2.3, 1.0  # factor by which the randomness of the fog falls per octave, at severities 0 and 1


def _zero_at_zero(severities: Tensor, amount: Tensor) -> Tensor:
    """Return the amounts, with 0 at severity 0: these amounts don't start at 0, but severity 0 is the clean image."""
    return torch.where(severities[:, 0] == 0, 0.0, amount)


def _thickness(severities: Tensor) -> Tensor:
    return FOG + (FOG_MOST - FOG) * severities[:, 0]


@pixel_property(
    "fog",
    PropertyFacts(
        "fog", "weather", "% white", lambda s, h, w: _zero_at_zero(s, 100 * _thickness(s)), points=POINTS, source=ZHONG_2020
    ),
)
def fog(images: Tensor, severities: Tensor, draws: Draws) -> Tensor:
    """Add fog F in [0, 1] and rescale to keep the brightest value m: (x + p·F)·m/(m + p), with p = 1 + 2.5e.

    F is a plasma; each octave is 2.3 - 1.3e times less random than the one before. Even the lowest severity is strong.
    """
    decay = DECAY + (DECAY_LEAST - DECAY) * severities[:, 0]
    # the authors multiply the random term by its own width, so it falls with the square
    return add_fog(images, 255 * _thickness(severities), draw_plasma(draws, images, 1 / decay**2))


def add_fog(images: Tensor, white: PerImage, plasma: Tensor) -> Tensor:
    """Add fog F times p and rescale to keep the brightest value m: (x + p·F)·m/(m + p)."""
    brightest = images.amax((1, 2, 3), keepdim=True)
    most = brightest + (per_image(white, images) if isinstance(white, Tensor) else white)
    return blend(images, 1, white, plasma).mul_(brightest / most)


@pixel_property(
    "fog",
    PropertyFacts("fog", "weather", "% fog", lambda s, h, w: 100 * s[:, 0], source=ZHONG_2020),
    variant="standard",
)
def fog_from_nothing(images: Tensor, severities: Tensor, draws: Draws) -> Tensor:
    """Blend with fog F, from nothing to nothing but fog: (1 - e)·x + e·F.

    F is the authors' plasma with octaves half as wide. Their own fog, (x + p·F)·m/(m + p), is this one at e = p/(m + p):
    for images that reach white (m = 1) it starts at e = 0.5.
    """
    share = severities[:, 0]
    return blend(images, 1 - share, 255 * share, draw_plasma(draws, images, torch.full_like(share, STANDARD_RATIO)))


@pixel_property(
    "fog",
    PropertyFacts("fog", "weather", "% white", lambda s, h, w: 100 * FOG_MOST * s[:, 0], points=POINTS, source=ZHONG_2020),
    variant="equations",
)
def fog_as_written(images: Tensor, severities: Tensor, draws: Draws) -> Tensor:
    """Add fog, a plasma DS: x + e·κ·DS(e·γ), each octave e·γ times as random as the one before (Eq. 10).

    The paper gives no values; κ = 3.5 and γ = 1 are those of the authors' code at e = 1.
    """
    return blend(images, 1, 255 * FOG_MOST * severities[:, 0], draw_plasma(draws, images, severities[:, 0]))


def draw_plasma(draws: Draws, images: Tensor, ratio: Tensor) -> Tensor:
    """Return diamond-square maps in [0, 1], float32 (B, 1, H, W), cut out of a torus with a power of two as its side.

    Every octave fills in the centres of squares, then of diamonds, with the mean of four neighbours and a random term
    whose width is `ratio` (B,) times that of the octave before.
    """
    height, width = images.shape[2:]
    octaves = (max(height, width) - 1).bit_length()
    bits = draws.bits(0, 4**octaves - 1)
    widths = to_device((ratio[:, None] ** torch.arange(octaves)).to(torch.float32), images.device)
    kernels = kernels_for("weather", bits)
    found: Tensor = _fill_octaves(bits, widths) if kernels is None else kernels.plasma(bits, widths)
    low, high = found.amin((1, 2))[:, None, None, None], found.amax((1, 2))[:, None, None, None]
    return (found[:, None, :height, :width] - low).div_(high - low)


def _fill_octaves(bits: Tensor, widths: Any) -> Tensor:
    """Return maps from random bits, int32 (B, 4**octaves - 1), and the widths of random terms, (B, octaves)."""
    noise: Any = (bits >> 8).to(torch.float32)
    corners: Any = torch.zeros(len(bits), 1, 1, device=bits.device)
    empty: Callable[..., Any] = partial(torch.empty, device=bits.device)
    on_host = bits.device.type == "cpu"
    if on_host:  # small steps cost less in NumPy
        noise, widths, corners, empty = noise.numpy(), widths.numpy(), corners.numpy(), partial(np.empty, dtype=np.float32)
    for octave in range(widths.shape[1]):
        side = 2**octave
        term = noise[:, side**2 - 1 : 4 * side**2 - 1].reshape(-1, 3, side, side) * widths[:, octave, None, None, None]
        corners = _fill_in(corners, term, empty)
    return torch.from_numpy(corners) if on_host else corners


def _fill_in(corners: Any, term: Any, empty: Callable[..., Any]) -> Any:
    """Return a map of twice the size, with random terms (B, 3, n, n) of centres and of points to the right and below.

    All are tensors, or all are arrays.
    """
    batch, side = corners.shape[:2]
    # a frame in which what follows the last row and column is the first
    framed = empty((batch, side + 1, side + 1))
    framed[:, :side, :side] = corners
    framed[:, side, :side] = corners[:, 0]
    framed[:, :, side] = framed[:, :, 0]
    below = framed[:, 1:] + framed[:, :-1]
    right = framed[:, :-1, 1:] + corners
    middles = empty((batch, side + 1, side + 1))  # with what comes before the first row and column
    inner = below[:, :, 1:] + below[:, :, :-1]
    inner *= 0.25
    inner += term[:, 0]
    middles[:, 1:, 1:] = inner
    middles[:, 0, 1:] = inner[:, -1]
    middles[:, :, 0] = middles[:, :, side]
    filled = empty((batch, side, 2, side, 2))
    filled[:, :, 0, :, 0] = corners
    filled[:, :, 1, :, 1] = inner
    for row, column, outer, edge in ((0, 1, middles[:, :-1, 1:], right), (1, 0, middles[:, 1:, :-1], below[:, :, :-1])):
        found = outer + inner
        found += edge
        found *= 0.25
        found += term[:, 1 + row]
        filled[:, :, row, :, column] = found
    return filled.reshape(batch, 2 * side, 2 * side)


def _flakes(severities: Tensor, height: int = 0, width: int = 0) -> Tensor:
    return _zero_at_zero(severities, (1 + severities[:, 0] * (FLAKES - 1)).floor())


@pixel_property("snow", PropertyFacts("snow", "weather", "flakes", _flakes, points=POINTS, source=ZHONG_2020))
def snow(images: Tensor, severities: Tensor, draws: Draws) -> Tensor:
    """Add 1 to 100 flakes: discs with a radius of √(0.1·min(h, w)), smeared along 45°, whose overlaps add up.

    The n-th flake of an image always has the same position.
    """
    height, width = images.shape[2:]
    flake, length = flake_counts(height, width)
    top = draws.below(0, FLAKES, height - len(flake))
    left = draws.below(1, FLAKES, max(1, width - len(flake)))
    fallen, kernels = _flakes(severities), kernels_for("weather", images)
    if kernels is None:
        counts = _lay_flakes(top, left, fallen, flake, (height, width))
    else:
        fallen, flake = (to_device(each, images.device) for each in (fallen.to(torch.int32), flake))
        counts = kernels.lay_flakes(top, left, fallen, flake, (height, width))
    return blend(images, 1, 255 / length, counts)


def _lay_flakes(top: Tensor, left: Tensor, fallen: Tensor, flake: Tensor, size: tuple[int, int]) -> Tensor:
    """Return the sums of the first flakes of each image where they lie, (B, 1, H, W), from corners (B, FLAKES)."""
    height, width = size
    rows, columns = flake.nonzero(as_tuple=True)
    pixels = (top * width + left)[:, :, None] + (rows * width + columns).to(top.device)
    there = (torch.arange(FLAKES) < fallen[:, None]).to(torch.float32).to(top.device)
    values = there[:, :, None] * flake[rows, columns].to(top.device)
    # sums of whole numbers don't depend on their order
    counts = torch.zeros(len(top), height * width, device=top.device)
    counts.scatter_add_(1, pixels.flatten(1), values.flatten(1))
    return counts.view(-1, 1, height, width)


@cache
def flake_counts(height: int, width: int) -> tuple[Tensor, int]:
    """Return a flake of (h/10)² pixels as whole numbers, and the number that stands for full scale: the length of the
    line along which it is smeared.

    At 224×224: 22×22 pixels, a radius of 4.7, a line of 9 pixels, and 7/9 of full scale at the brightest.
    """
    side = max(1, min(height // 10, width))
    middle = side // 2
    row = np.arange(side)[:, None] - middle
    disc = (row**2 + row.T**2 <= 0.1 * min(height, width)).astype(np.float64)
    length = max(1, int(0.9 * middle))
    smeared = cv2.filter2D(disc, -1, np.eye(length)[::-1].copy())
    return torch.from_numpy(smeared.round()).to(torch.float32), length
