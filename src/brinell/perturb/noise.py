"""Sensors that are noisy or broken (seed 3). One field of noise an image, scaled by the severity.

Uniform numbers are the top 24 bits of a draw, which a float32 holds exactly; normal ones are looked up with 16 bits in a
table, so that every device has the same.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

from brinell.draws import Draws
from brinell.perturb.papers import ZHONG_2020
from brinell.perturb.property import PropertyFacts, per_image, pixel_property


def _signed_uniform(draws: Draws, shape: torch.Size) -> Tensor:
    """Uniform numbers in [-1, 1)."""
    return (draws.bits(0, shape[1:].numel()) >> 8).to(torch.float32).mul_(2.0**-23).view(shape)


def _normal(draws: Draws, shape: torch.Size) -> Tensor:
    """Normal numbers, two from each draw."""
    count = shape[1:].numel()
    bits = draws.bits(0, (count + 1) // 2)
    halves = torch.cat([bits & 0xFFFF, (bits >> 16).bitwise_and_(0xFFFF)], 1)[:, :count]
    return _quantiles(bits.device).index_select(0, halves.flatten()).view(shape)


@cache
def _quantiles(device: torch.device) -> Tensor:
    """The means of 65,536 equally likely parts of the normal distribution, nearly: their middles, scaled to variance 1."""
    middles: Tensor = torch.special.ndtri((torch.arange(1 << 16, dtype=torch.float64) + 0.5) / (1 << 16))
    return (middles / middles.square().mean().sqrt()).to(torch.float32).to(device)


@pixel_property(
    "uniform_noise",
    PropertyFacts("uniform noise", "noise", "grey levels at most", lambda s, h, w: 255 * s[:, 0] ** 2, source=ZHONG_2020),
)
def uniform_noise(images: Tensor, severities: Tensor, draws: Draws) -> Tensor:
    """Eq. 6: x + e·U(-e, e), so noise of amplitude e² of the range."""
    return images.add_(_signed_uniform(draws, images.shape).mul_(per_image(255 * severities[:, 0] ** 2, images)))


@pixel_property(
    "gaussian_noise",
    PropertyFacts(
        "Gaussian noise", "noise", "grey levels s.d.", lambda s, h, w: 255 * s[:, 0] ** 2 / math.sqrt(3), source=ZHONG_2020
    ),
)
def gaussian_noise(images: Tensor, severities: Tensor, draws: Draws) -> Tensor:
    """X + e·N(0, (e/√3)²): the standard deviation is e²/√3 of the range, that of the uniform noise."""
    deviation = 255 * severities[:, 0] ** 2 / math.sqrt(3)
    return images.add_(_normal(draws, images.shape).mul_(per_image(deviation, images)))


@pixel_property(
    "gaussian_noise",
    PropertyFacts("Gaussian noise", "noise", "grey levels s.d.", lambda s, h, w: 255 * s[:, 0] ** 2, source=ZHONG_2020),
    variant="equations",
)
def gaussian_noise_as_written(images: Tensor, severities: Tensor, draws: Draws) -> Tensor:
    """Eq. 7: x + e·N(0, (e·C)²) with C the range: the standard deviation is e² of the range."""
    return images.add_(_normal(draws, images.shape).mul_(per_image(255 * severities[:, 0] ** 2, images)))


@pixel_property(
    "blended_noise", PropertyFacts("blended noise", "noise", "% noise", lambda s, h, w: 100 * s[:, 0], source=ZHONG_2020)
)
def blended_noise(images: Tensor, severities: Tensor, draws: Draws) -> Tensor:
    """Eq. 8: towards an image of uniform noise, (1 - e)·x + e·u.

    The authors draw such images until one alone is misclassified, and blend with that one. Here it is the image's field,
    whatever a model says about it: an image is the same for all models, and e = 1 need not break them.
    """
    share = severities[:, 0]
    # 127.5 + 127.5·[-1, 1) is [0, 255)
    field = _signed_uniform(draws, images.shape).add_(1).mul_(per_image(127.5 * share, images))
    return images.mul_(per_image(1 - share, images)).add_(field)


@pixel_property(
    "salt_and_pepper",
    PropertyFacts("salt & pepper", "noise", "% of pixels", lambda s, h, w: 100 * s[:, 0], source=ZHONG_2020),
)
def salt_and_pepper(images: Tensor, severities: Tensor, draws: Draws) -> Tensor:
    """Eq. 9: a share e of pixels is white or black, in all channels at once."""
    batch, _, height, width = images.shape
    place = _signed_uniform(draws, torch.Size([batch, 1, height, width]))
    # u < e/2 and u ≥ 1 - e/2 on the scale from -1 to 1
    bound = per_image(1 - severities[:, 0], images)
    salt, pepper = (place >= bound).to(torch.float32), (place < -bound).to(torch.float32)
    return images.add_(salt.sub_(pepper).mul_(255))
