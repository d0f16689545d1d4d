"""A camera that turned or moved (seed 3). What comes in at the border is black.

Positive angles are anticlockwise. Pixel centres lie at whole numbers, and images turn about (w/2, h/2), half a pixel
below and to the right of the middle, as the authors had it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from brinell.perturb.papers import ZHONG_2020
from brinell.perturb.property import NEARLY, PropertyFacts, motion_property

REACH = 5  # pixels that `spatial` moves at most, each way


def _degrees(severities: Tensor, height: int, width: int) -> Tensor:
    return 180 * severities[:, 0]


def _whole_pixels(share: Tensor, side: int) -> Tensor:
    """A share of a side, cut off to whole pixels."""
    return (share * side + share.sign() * NEARLY).trunc()


def _along(severities: Tensor, height: int, width: int) -> Tensor:
    return _whole_pixels(severities[:, 0], width)


def _down(severities: Tensor, height: int, width: int) -> Tensor:
    return _whole_pixels(severities[:, 0], height)


def _turned_and_moved(degrees: Tensor, along: Tensor, down: Tensor, height: int, width: int) -> Tensor:
    """Matrices of a turn about (w/2, h/2) and then a move, float64 (B, 3, 3)."""
    cosine, sine = torch.deg2rad(degrees).cos(), torch.deg2rad(degrees).sin()
    x, y = width / 2, height / 2
    across = torch.stack([cosine, sine, x - cosine * x - sine * y + along], -1)
    downwards = torch.stack([-sine, cosine, y + sine * x - cosine * y + down], -1)
    flat = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64).expand_as(across)
    return torch.stack([across, downwards, flat], 1)


@motion_property(
    "rotation",
    PropertyFacts(
        "rotation", "spatial", "degrees", _degrees, points=500, directions=("anticlockwise", "clockwise"), source=ZHONG_2020
    ),
)
def rotation(severities: Tensor, height: int, width: int) -> Tensor:
    """A turn by up to 180 degrees each way."""
    still = torch.zeros(len(severities), dtype=torch.float64)
    return _turned_and_moved(_degrees(severities, height, width), still, still, height, width)


@motion_property(
    "horizontal_translation",
    PropertyFacts(
        "horizontal translation",
        "spatial",
        "px",
        _along,
        points=lambda height, width: min(50, width),
        directions=("right", "left"),
        source=ZHONG_2020,
    ),
)
def horizontal_translation(severities: Tensor, height: int, width: int) -> Tensor:
    """A move by whole pixels, up to the width."""
    still = torch.zeros(len(severities), dtype=torch.float64)
    return _turned_and_moved(still, _along(severities, height, width), still, height, width)


@motion_property(
    "vertical_translation",
    PropertyFacts(
        "vertical translation",
        "spatial",
        "px",
        _down,
        points=lambda height, width: min(50, height),
        directions=("down", "up"),
        source=ZHONG_2020,
    ),
)
def vertical_translation(severities: Tensor, height: int, width: int) -> Tensor:
    """A move by whole pixels, up to the height."""
    still = torch.zeros(len(severities), dtype=torch.float64)
    return _turned_and_moved(still, still, _down(severities, height, width), height, width)


def _parts(severities: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Degrees and whole pixels from shares of 180 degrees and 5 pixels."""
    return 180 * severities[:, 0], (REACH * severities[:, 1]).round(), (REACH * severities[:, 2]).round()


def _displacement(severities: Tensor, height: int, width: int) -> Tensor:
    """The root mean square of how far pixels move, in closed form.

    A pixel at q from the centre moves by (R - I)q + t, so the mean square is 4 sin²(a/2)·mean|q|² + 2t·(R - I)mean(q) +
    |t|²; the mean of q is (-1/2, -1/2), as the centre lies half a pixel from the middle.
    """
    degrees, along, down = _parts(severities)
    angle = torch.deg2rad(degrees)
    turn = 4 * (angle / 2).sin() ** 2 * _spread(height, width)
    drift_x = -0.5 * (angle.cos() - 1 + angle.sin())
    drift_y = -0.5 * (angle.cos() - 1 - angle.sin())
    return (turn + 2 * (along * drift_x + down * drift_y) + along**2 + down**2).clamp(min=0).sqrt()


def _spread(height: int, width: int) -> float:
    """The mean square distance of pixels from (w/2, h/2)."""
    return (width**2 - 1 + height**2 - 1) / 12 + 0.5


def _by_displacement(points: int, height: int, width: int) -> Tensor:
    """Turns and moves at once, from weak to strong, spread over all directions of (angle, right, down).

    Displacements grow from a fraction of a pixel to a half turn, closer together at first. Each is shared out between a
    move by whole pixels, which goes through all that are short enough in scattered order, and a turn one way or the
    other, which takes the rest.
    """
    rank = torch.arange(1, points + 1, dtype=torch.float64)
    share = rank / points
    turns = _spread(height, width)
    squares = 4 * turns * ((share + 3 * share**2) / 4) ** 2
    steps = torch.arange(-REACH, REACH + 1, dtype=torch.float64)
    moves = torch.cartesian_prod(steps, steps)
    lengths = (moves**2).sum(1)
    order = lengths.argsort(stable=True)
    moves, lengths = moves[order], lengths[order]
    # moves that use up nearly all of a displacement leave no turn, and come twice
    short_enough = torch.searchsorted(lengths, 0.98 * squares)
    scattered = (rank * ((math.sqrt(5) - 1) / 2)) % 1
    chosen = (scattered * short_enough.clamp(min=1)).long()
    side = torch.where((rank * math.sqrt(2)) % 1 < 0.5, 1.0, -1.0)
    angle = 2 * ((squares - lengths[chosen]) / (4 * turns)).clamp(0, 1).sqrt().asin() * side
    candidates = torch.stack([angle / math.pi, moves[chosen, 0] / REACH, moves[chosen, 1] / REACH], 1)
    return candidates[_displacement(candidates, height, width).argsort(stable=True)]


@motion_property(
    "spatial",
    PropertyFacts("spatial", "spatial", "px rms", _displacement, grid=_by_displacement, source=ZHONG_2020),
)
def spatial(severities: Tensor, height: int, width: int) -> Tensor:
    """A turn by up to 180 degrees and then a move of up to 5 pixels right or left, down or up.

    One warp does both. The authors warp twice, but their second warp moves by whole pixels, so that they interpolate once,
    too; what differs is what the turn took out of the frame: a move brings it back here, and leaves black there.
    Their search goes through all angles before it first moves; this one goes by growing displacement.
    """
    return _turned_and_moved(*_parts(severities), height, width)
