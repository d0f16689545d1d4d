"""Noise of ImageNet-C."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from brinell.draws import Draws
from brinell.perturb.corruptions.fields import halves, normal
from brinell.perturb.corruptions.severity import EXTRA, Constants, Corruption, Row, corruption
from brinell.perturb.levels import to_bytes

_BITS = 12  # of a draw that select the number of photons
_MANY = 1000  # photons of a white pixel, from which on their number counts as normal


@corruption(
    "gaussian_noise",
    Corruption(
        "Gaussian noise",
        "noise",
        Constants([(0.08,), (0.12,), (0.18,), (0.26,), (0.38,)], [(0.04,), (0.06,), (0.08,), (0.09,), (0.10,)], (0.0,)),
        "local",
    ),
)
def gaussian_noise(images: Tensor, constants: Row, draws: Draws) -> Tensor:
    """Add Gaussian noise."""
    (deviation,) = constants
    return images.add_(normal(draws, 0, images.shape, 255 * deviation))


@corruption(
    "shot_noise",
    Corruption(
        "shot noise",
        "noise",
        # the standard deviation of a white pixel, from its number of photons
        Constants(
            [(photons**-0.5,) for photons in (60, 25, 12, 5, 3)],
            [(photons**-0.5,) for photons in (500, 250, 100, 75, 50)],
            (0.0,),
        ),
        "local",
        bytes=True,
    ),
)
def shot_noise(images: Tensor, constants: Row, draws: Draws) -> Tensor:
    """Draw every value from a Poisson distribution: few photons reach the sensor."""
    table = _photons(constants[0], images.device)
    level = (halves(draws, 0, images.shape) >> (16 - _BITS)).to(torch.int32).add_(1 << (_BITS - 1))
    index = images.to(torch.int32).mul_(1 << _BITS).add_(level)
    return table.index_select(0, index.flatten()).view(images.shape)


@lru_cache(64)
def _photons(deviation: float, device: torch.device) -> Tensor:
    """Return the grey level of each value 0 to 255 at 4,096 equally likely draws, uint8 (256·4096,)."""
    white = deviation**-2
    middles = (torch.arange(1 << _BITS, dtype=torch.float64) + 0.5) / (1 << _BITS)
    rate = torch.arange(256, dtype=torch.float64)[:, None] * (white / 255)
    if white > _MANY:  # the distribution is normal to within half a grey level
        number = rate + rate.sqrt() * torch.special.ndtri(middles)
    else:
        # far enough that what is left out is less likely than half a draw
        counts = torch.arange(int(white + 6 * white**0.5 + 12), dtype=torch.float64)
        likely = (counts * rate.clamp(min=1e-300).log() - rate - torch.lgamma(counts + 1)).exp()
        number = torch.searchsorted(likely.cumsum(1), middles.expand(256, -1).contiguous()).to(torch.float64)
    levels: Tensor = (number * (255 / white)).clamp(0, 255).round()
    return levels.to(torch.uint8).flatten().to(device)


@corruption(
    "impulse_noise",
    Corruption(
        "impulse noise",
        "noise",
        Constants([(0.03,), (0.06,), (0.09,), (0.17,), (0.27,)], [(0.01,), (0.02,), (0.03,), (0.05,), (0.07,)], (0.0,)),
        "local",
        bytes=True,
    ),
)
def impulse_noise(images: Tensor, constants: Row, draws: Draws) -> Tensor:
    """Set values to the lowest or highest, independently in each channel."""
    half = round(constants[0] * (1 << 15))
    if half == 0:
        return images
    low, high = half - (1 << 15), (1 << 15) - half
    field = halves(draws, 0, images.shape)
    # masks of 0 and 255, made by clamping, which is several times faster than comparisons and `where` on a CPU
    kept, white = (to_bytes(field.clamp(least - 1, least).sub_(least - 1)).neg_() for least in (low, high))
    return kept.bitwise_and_(images).bitwise_or_(white)


@corruption(
    "speckle_noise",
    Corruption(
        "speckle noise",
        "noise",
        Constants([(0.15,), (0.2,), (0.35,), (0.45,), (0.6,)], [(0.06,), (0.1,), (0.12,), (0.16,), (0.2,)], (0.0,)),
        "local",
        family=EXTRA,
    ),
)
def speckle_noise(images: Tensor, constants: Row, draws: Draws) -> Tensor:
    """Add Gaussian noise in proportion to every value."""
    (deviation,) = constants
    return images.mul_(normal(draws, 0, images.shape, deviation).add_(1))
