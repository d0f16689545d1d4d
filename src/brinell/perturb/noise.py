"""Noise (DSN 2020, Zhong, Hu and Chen): one random field per image, scaled by the severity.

Uniform numbers are the top 24 bits of a draw, which float32 holds exactly; normal numbers are looked up in a table by 16
bits. So every device gets the same field.
"""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

from brinell.draws import Draws
from brinell.kernels import kernels_for
from brinell.perturb.levels import blend, per_image
from brinell.perturb.papers import ZHONG_2020
from brinell.perturb.property import PropertyFacts, pixel_property


def _signed_uniform(draws: Draws, shape: torch.Size) -> Tensor:
    """Draw uniform numbers in [-1, 1)."""
    bits = draws.bits(0, shape[1:].numel())
    kernels = kernels_for("noise", bits)
    field: Tensor = (bits >> 8).to(torch.float32).mul_(2.0**-23) if kernels is None else kernels.signed_uniform(bits)
    return field.view(shape)


def _normal(draws: Draws, shape: torch.Size) -> Tensor:
    """Draw normal numbers, two from each 32 bits."""
    count = shape[1:].numel()
    bits = draws.bits(0, (count + 1) // 2)
    table, kernels = normal_quantiles(bits.device), kernels_for("noise", bits)
    if kernels is not None:
        field: Tensor = kernels.look_up(bits, table, count)
    else:
        halves = torch.cat([bits & 0xFFFF, (bits >> 16).bitwise_and_(0xFFFF)], 1)[:, :count]
        field = table.index_select(0, halves.flatten())
    return field.view(shape)


@cache
def normal_quantiles(device: torch.device) -> Tensor:
    """Return the midpoints of 65,536 equally likely parts of the normal distribution, scaled to variance 1."""
    middles: Tensor = torch.special.ndtri((torch.arange(1 << 16, dtype=torch.float64) + 0.5) / (1 << 16))
    return (middles / middles.square().mean().sqrt()).to(torch.float32).to(device)


@pixel_property(
    "uniform_noise",
    PropertyFacts("uniform noise", "noise", "grey levels at most", lambda s, h, w: 255 * s[:, 0] ** 2, source=ZHONG_2020),
)
def uniform_noise(images: Tensor, severities: Tensor, draws: Draws) -> Tensor:
    """Add uniform noise: x + e·U(-e, e), an amplitude of e² of the range (Eq. 6)."""
    return blend(images, 1, 255 * severities[:, 0] ** 2, _signed_uniform(draws, images.shape))


@pixel_property(
    "gaussian_noise",
    PropertyFacts(
        "Gaussian noise",
        "noise",
        "grey levels (s.d.)",
        lambda s, h, w: 255 * s[:, 0] ** 2 / math.sqrt(3),
        source=ZHONG_2020,
    ),
)
def gaussian_noise(images: Tensor, severities: Tensor, draws: Draws) -> Tensor:
    """Add Gaussian noise: x + e·N(0, (e/√3)²), the standard deviation of the uniform noise, e²/√3 of the range."""
    deviation = 255 * severities[:, 0] ** 2 / math.sqrt(3)
    return blend(images, 1, deviation, _normal(draws, images.shape))


@pixel_property(
    "gaussian_noise",
    PropertyFacts("Gaussian noise", "noise", "grey levels (s.d.)", lambda s, h, w: 255 * s[:, 0] ** 2, source=ZHONG_2020),
    variant="equations",
)
def gaussian_noise_as_written(images: Tensor, severities: Tensor, draws: Draws) -> Tensor:
    """Add Gaussian noise: x + e·N(0, (e·C)²) for the range C, a standard deviation of e² of the range (Eq. 7)."""
    return blend(images, 1, 255 * severities[:, 0] ** 2, _normal(draws, images.shape))


@pixel_property(
    "blended_noise", PropertyFacts("blended noise", "noise", "% noise", lambda s, h, w: 100 * s[:, 0], source=ZHONG_2020)
)
def blended_noise(images: Tensor, severities: Tensor, draws: Draws) -> Tensor:
    """Blend with an image u of uniform noise: (1 - e)·x + e·u (Eq. 8).

    The authors draw noise images until the model misclassifies one, and blend with that. Here u is the image's random
    field, independent of the model: all models get the same images, and e = 1 need not break them.
    """
    share = severities[:, 0]
    # 127.5 + 127.5·[-1, 1) is [0, 255)
    return blend(images, 1 - share, 127.5 * share, _signed_uniform(draws, images.shape).add_(1))


@pixel_property(
    "salt_and_pepper",
    PropertyFacts("salt & pepper", "noise", "% of pixels", lambda s, h, w: 100 * s[:, 0], source=ZHONG_2020),
)
def salt_and_pepper(images: Tensor, severities: Tensor, draws: Draws) -> Tensor:
    """Turn a share e of the pixels white or black, in all channels at once (Eq. 9)."""
    batch, _, height, width = images.shape
    field = _signed_uniform(draws, torch.Size([batch, 1, height, width]))
    # u < e/2 and u ≥ 1 - e/2, rescaled from [0, 1) to [-1, 1)
    bound = per_image(1 - severities[:, 0], images)
    salt, pepper = (field >= bound).to(torch.float32), (field < -bound).to(torch.float32)
    return blend(images, 1, 255, salt.sub_(pepper))
