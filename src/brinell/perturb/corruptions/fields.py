"""Random fields of the corruptions, and how they are stretched: the same numbers on every device.

Every 32 bits of a draw give two numbers of 16 bits.
"""

from __future__ import annotations

import math
from functools import lru_cache

import cv2
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
def zoom_positions(
    side: int, factor: float, device: torch.device, parts: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return where the centre of an axis, enlarged by a factor, reads from: two neighbours and the weight of the second,
    (n, 1), rounded to parts of a pixel if given.

    The middle ⌈side/factor⌉ pixels are spread evenly over ⌊n·factor⌉ ones, end on end, and the middle of these is kept.
    """
    count = math.ceil(side / factor)
    stretched = max(round(count * factor), 1)
    first, trimmed = (side - count) // 2, (stretched - side) // 2
    position = (torch.arange(side, dtype=torch.float64) + trimmed) * ((count - 1) / max(stretched - 1, 1))
    position = position.clamp(0, count - 1)
    low = position.floor().clamp(max=max(count - 2, 0))
    weight = position - low if parts is None else ((position - low) * parts).round() / parts
    near = low.to(torch.int64) + first
    far = (near + 1).clamp(max=side - 1)
    return near.to(device), far.to(device), weight.to(torch.float32)[:, None].to(device)


def zoom(images: Tensor, factor: float) -> Tensor:
    """Enlarge the centre of images (B, C, H, W) by a factor, by linear interpolation."""
    for _ in range(2):
        near, far, weight = zoom_positions(images.shape[2], factor, images.device)
        rows = images.index_select(2, near)
        # separate products and sums, which every device rounds alike
        images = turn(rows.add_(images.index_select(2, far).sub_(rows).mul_(weight)))
    return images


def turn(images: Tensor) -> Tensor:
    """Transpose the last two axes; whole rows are read faster than columns."""
    if images.device.type != "cpu":
        return images.transpose(-2, -1).contiguous()
    made = images.new_empty(*images.shape[:-2], images.shape[-1], images.shape[-2])
    for plane, target in zip(images.flatten(0, -3).numpy(), made.flatten(0, -3).numpy(), strict=True):
        cv2.transpose(plane, dst=target)
    return made
