"""Random fields of the corruptions, and how they are stretched: the same numbers on every device.

Every 32 bits of a draw give two numbers of 16 bits.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from brinell.draws import Draws
from brinell.perturb.noise import normal_quantiles


def halves(draws: Draws, purpose: int, shape: torch.Size) -> Tensor:
    """Draw whole numbers from -2¹⁵ to 2¹⁵ - 1, int16."""
    count = shape[1:].numel()
    return draws.bits(purpose, (count + 1) // 2).view(torch.int16)[:, :count].reshape(shape)


def normal(draws: Draws, purpose: int, shape: torch.Size, deviation: float = 1.0) -> Tensor:
    """Draw normal numbers, float32."""
    index = halves(draws, purpose, shape).to(torch.int32).add_(1 << 15)
    return _quantiles(deviation, index.device).index_select(0, index.flatten()).view(shape)


@lru_cache(64)
def _quantiles(deviation: float, device: torch.device) -> Tensor:
    return normal_quantiles(device) * deviation


@lru_cache(256)
def _zoom_positions(side: int, factor: float, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Return where the centre of an axis, enlarged by a factor, reads from: two neighbours and the weight of the second.

    The middle ⌈side/factor⌉ pixels are spread evenly over ⌊n·factor⌉ ones, end on end, and the middle of these is kept.
    """
    count = math.ceil(side / factor)
    stretched = max(round(count * factor), 1)
    first, trimmed = (side - count) // 2, (stretched - side) // 2
    position = (torch.arange(side, dtype=torch.float64) + trimmed) * ((count - 1) / max(stretched - 1, 1))
    position = position.clamp(0, count - 1)
    low = position.floor().clamp(max=max(count - 2, 0))
    weight = (position - low).to(torch.float32)
    near = low.to(torch.int64) + first
    return near.to(device), (near + 1).clamp(max=side - 1).to(device), weight.to(device)


def zoom(images: Tensor, factor: float) -> Tensor:
    """Enlarge the centre of images (B, C, H, W) by a factor, by linear interpolation."""
    return zoom_and_turn(images, factor).transpose(2, 3)


def zoom_and_turn(images: Tensor, factor: float) -> Tensor:
    """Enlarge the centre of images and transpose them, (B, C, W, H): whole rows are read faster than columns."""
    for axis in (2, 3):
        near, far, weight = _zoom_positions(images.shape[2], factor, images.device)
        rows = images.index_select(2, near)
        # separate products and sums, which every device rounds alike
        rows.add_(images.index_select(2, far).sub_(rows).mul_(weight[:, None]))
        images = rows.transpose(2, 3).contiguous() if axis == 2 else rows
    return images
