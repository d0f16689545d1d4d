"""Brightness and contrast (DSN 2020, Zhong, Hu and Chen)."""

from __future__ import annotations

import torch
from torch import Tensor

from brinell.perturb.levels import blend
from brinell.perturb.papers import ZHONG_2020
from brinell.perturb.property import PropertyFacts, pixel_property

_TWO_SIDED = ("lighter", "darker")


def _factor(severities: Tensor, height: int = 0, width: int = 0) -> Tensor:
    """Return the factor of a severity: from 1 linearly up to 255, or linearly down to 1/255."""
    size = severities[:, 0]
    return torch.where(size > 0, 1 + 254 * size, 1 + size * (254 / 255))


def _exposure(severities: Tensor, height: int = 0, width: int = 0) -> Tensor:
    """Return the factor of a severity: up to 8 stops lighter or darker, in equal parts of a stop."""
    return torch.exp2(8 * severities[:, 0])


def _whole_levels(severities: Tensor, height: int = 0, width: int = 0) -> Tensor:
    return (severities[:, 0] * 255).round()


@pixel_property(
    "brightness",
    PropertyFacts("brightness", "luminance", "×", _factor, points=500, directions=_TWO_SIDED, source=ZHONG_2020),
)
def brightness(images: Tensor, severities: Tensor) -> Tensor:
    """Multiply every value by a factor: 1.508 at the first step up, 0.998 at the first step down."""
    return blend(images, _factor(severities))


@pixel_property(
    "brightness",
    PropertyFacts("brightness", "luminance", "×", _exposure, points=500, directions=_TWO_SIDED, source=ZHONG_2020),
    variant="standard",
)
def brightness_in_stops(images: Tensor, severities: Tensor) -> Tensor:
    """Multiply every value by a factor, up to 8 stops (× 256 or 1/256); the first step is 1.1 % in either direction."""
    return blend(images, _exposure(severities))


@pixel_property(
    "brightness",
    PropertyFacts(
        "brightness", "luminance", "grey levels", _whole_levels, points=255, directions=_TWO_SIDED, source=ZHONG_2020
    ),
    variant="equations",
)
def brightness_as_written(images: Tensor, severities: Tensor) -> Tensor:
    """Add up to 255 whole grey levels to every value, or subtract them (Eq. 1)."""
    return blend(images, weight=_whole_levels(severities))


@pixel_property(
    "contrast", PropertyFacts("contrast", "luminance", "% less contrast", lambda s, h, w: 100 * s[:, 0], source=ZHONG_2020)
)
def contrast(images: Tensor, severities: Tensor) -> Tensor:
    """Blend every value with mid-grey: (1 - e)·x + e·127.5 (Eq. 2)."""
    share = severities[:, 0]
    return blend(images, 1 - share, share * 127.5)
