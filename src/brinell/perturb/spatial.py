"""Rotations and translations (DSN 2020, Zhong, Hu and Chen). Pixels from outside the image are black.

Positive angles are anticlockwise. Pixel centres are at whole numbers, and images turn about (w/2, h/2), half a pixel below
and to the right of the centre, as in the authors' code.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from brinell.perturb.papers import ZHONG_2020
from brinell.perturb.property import NEARLY, Amount, PropertyFacts, motion_property

REACH = 5  # largest shift of `spatial` in each direction, pixels


def _degrees(severities: Tensor, height: int, width: int) -> Tensor:
    return 180 * severities[:, 0]


def _whole_pixels(share: Tensor, side: int) -> Tensor:
    """Return a share of a side, truncated to whole pixels."""
    return (share * side + share.sign() * NEARLY).trunc()


def _shift_x(severities: Tensor, height: int, width: int) -> Tensor:
    return _whole_pixels(severities[:, 0], width)


def _shift_y(severities: Tensor, height: int, width: int) -> Tensor:
    return _whole_pixels(severities[:, 0], height)


def _rotate_and_shift(degrees: Tensor, shift_x: Tensor, shift_y: Tensor, height: int, width: int) -> Tensor:
    """Return the matrices of a rotation about (w/2, h/2) followed by a shift, float64 (B, 3, 3)."""
    cosine, sine = torch.deg2rad(degrees).cos(), torch.deg2rad(degrees).sin()
    x, y = width / 2, height / 2
    first = torch.stack([cosine, sine, x - cosine * x - sine * y + shift_x], -1)
    second = torch.stack([-sine, cosine, y + sine * x - cosine * y + shift_y], -1)
    third = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64).expand_as(first)
    return torch.stack([first, second, third], 1)


@motion_property(
    "rotation",
    PropertyFacts(
        "rotation", "spatial", "degrees", _degrees, points=500, directions=("anticlockwise", "clockwise"), source=ZHONG_2020
    ),
)
def rotation(severities: Tensor, height: int, width: int) -> Tensor:
    """Rotate by up to 180 degrees in either direction."""
    still = torch.zeros(len(severities), dtype=torch.float64)
    return _rotate_and_shift(_degrees(severities, height, width), still, still, height, width)


def _shift_facts(
    title: str, amount: Amount, directions: tuple[str, str], points: Callable[[int, int], int]
) -> PropertyFacts:
    return PropertyFacts(title, "spatial", "px", amount, points=points, directions=directions, source=ZHONG_2020)


_horizontal = partial(_shift_facts, "horizontal translation", _shift_x, ("right", "left"))
_vertical = partial(_shift_facts, "vertical translation", _shift_y, ("down", "up"))


@motion_property("horizontal_translation", _horizontal(lambda height, width: min(50, width)))
def horizontal_translation(severities: Tensor, height: int, width: int) -> Tensor:
    """Shift horizontally by whole pixels in 50 steps, up to the width."""
    still = torch.zeros(len(severities), dtype=torch.float64)
    return _rotate_and_shift(still, _shift_x(severities, height, width), still, height, width)


@motion_property("vertical_translation", _vertical(lambda height, width: min(50, height)))
def vertical_translation(severities: Tensor, height: int, width: int) -> Tensor:
    """Shift vertically by whole pixels in 50 steps, up to the height."""
    still = torch.zeros(len(severities), dtype=torch.float64)
    return _rotate_and_shift(still, still, _shift_y(severities, height, width), height, width)


@motion_property("horizontal_translation", _horizontal(lambda height, width: width), variant="standard")
def horizontal_translation_by_pixels(severities: Tensor, height: int, width: int) -> Tensor:
    """Shift horizontally, pixel by pixel, up to the width."""
    return horizontal_translation(severities, height, width)


@motion_property("vertical_translation", _vertical(lambda height, width: height), variant="standard")
def vertical_translation_by_pixels(severities: Tensor, height: int, width: int) -> Tensor:
    """Shift vertically, pixel by pixel, up to the height."""
    return vertical_translation(severities, height, width)


def _angle_and_shifts(severities: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the angle in degrees and the shifts in whole pixels, from shares of 180 degrees and 5 pixels."""
    return 180 * severities[:, 0], (REACH * severities[:, 1]).round(), (REACH * severities[:, 2]).round()


def _displacement(severities: Tensor, height: int, width: int) -> Tensor:
    """Return the root mean square displacement of pixels, in closed form.

    A pixel at q from the centre of rotation moves by (R - I)q + t, so the mean square is 4 sin²(a/2)·mean|q|² +
    2t·(R - I)mean(q) + |t|²; the mean of q is (-1/2, -1/2), because that centre lies half a pixel from the image's.
    """
    degrees, shift_x, shift_y = _angle_and_shifts(severities)
    angle = torch.deg2rad(degrees)
    turn = 4 * (angle / 2).sin() ** 2 * _mean_square_distance(height, width)
    mean_x = -0.5 * (angle.cos() - 1 + angle.sin())
    mean_y = -0.5 * (angle.cos() - 1 - angle.sin())
    return (turn + 2 * (shift_x * mean_x + shift_y * mean_y) + shift_x**2 + shift_y**2).clamp(min=0).sqrt()


def _mean_square_distance(height: int, width: int) -> float:
    """Return the mean square distance of pixels from (w/2, h/2)."""
    return (width**2 - 1 + height**2 - 1) / 12 + 0.5


def _grid_by_displacement(points: int, height: int, width: int) -> Tensor:
    """Return combined rotations and shifts from weak to strong, spread over all directions of (angle, right, down).

    Displacements grow from a fraction of a pixel to a half turn, more densely at first. Each is divided between a shift by
    whole pixels, which cycles through all short enough ones in scattered order, and a rotation in either direction, which
    makes up the rest.
    """
    rank = torch.arange(1, points + 1, dtype=torch.float64)
    share = rank / points
    mean_square = _mean_square_distance(height, width)
    squares = 4 * mean_square * ((share + 3 * share**2) / 4) ** 2
    steps = torch.arange(-REACH, REACH + 1, dtype=torch.float64)
    shifts = torch.cartesian_prod(steps, steps)
    lengths = (shifts**2).sum(1)
    order = lengths.argsort(stable=True)
    shifts, lengths = shifts[order], lengths[order]
    # a shift of almost the whole displacement leaves no rotation, and would occur twice
    short_enough = torch.searchsorted(lengths, 0.98 * squares)
    scattered = (rank * ((math.sqrt(5) - 1) / 2)) % 1
    chosen = (scattered * short_enough.clamp(min=1)).long()
    side = torch.where((rank * math.sqrt(2)) % 1 < 0.5, 1.0, -1.0)
    angle = 2 * ((squares - lengths[chosen]) / (4 * mean_square)).clamp(0, 1).sqrt().asin() * side
    candidates = torch.stack([angle / math.pi, shifts[chosen, 0] / REACH, shifts[chosen, 1] / REACH], 1)
    return candidates[_displacement(candidates, height, width).argsort(stable=True)]


@motion_property(
    "spatial",
    PropertyFacts(
        "rotation and shift", "spatial", "px (rms)", _displacement, grid=_grid_by_displacement, source=ZHONG_2020
    ),
)
def spatial(severities: Tensor, height: int, width: int) -> Tensor:
    """Rotate by up to 180 degrees, then shift by up to 5 pixels right or left, down or up.

    One warp does both. The authors warp twice, but their second warp shifts by whole pixels, so they interpolate only once
    as well. The results differ where the rotation moves pixels out of the frame: here the shift brings them back, there
    they are black. The authors' search tries all angles before the first shift; this one goes by growing displacement.
    """
    return _rotate_and_shift(*_angle_and_shifts(severities), height, width)
