"""Blends of images with fields, and the way to whole grey levels: a read and a write for each value."""

from __future__ import annotations

import numpy as np
from numpy import float32, uint8
from torch import Tensor, from_numpy

from brinell.kernels.cpu.compiled import kernel

WHOLE = float32(12582912.0)  # a sum from 2**23 on has no fraction: it is rounded half to even


@kernel
def _add_number(images, keep, weight):  # type: ignore[no-untyped-def]  # Numba infers types
    for image in range(len(images)):
        factor, more = keep[image], weight[image]
        for channel in range(images.shape[1]):
            values = images[image, channel]
            for at in range(len(values)):
                values[at] = float32(values[at] * factor) + more


@kernel
def _add_field(images, keep, weight, field):  # type: ignore[no-untyped-def]
    for image in range(len(images)):
        factor, share = keep[image], weight[image]
        own = field[min(image, len(field) - 1)]
        for channel in range(images.shape[1]):
            values, more = images[image, channel], own[min(channel, len(own) - 1)]
            for at in range(len(values)):
                values[at] = float32(values[at] * factor) + float32(more[at] * share)


def blend(images: Tensor, factors: Tensor, field: Tensor | None) -> None:
    """Multiply float32 images (B, C, H, W) in place by one factor per image, and add a field times another.

    `factors` is float32 (2, B). The field is float32 (B, C or 1, H, W) or (C or 1, H, W), by default 1 everywhere.
    """
    values, (keep, weight) = images.flatten(2).numpy(), factors.numpy()
    if field is None:
        _add_number(values, keep, weight)
    else:
        shared = field[None] if field.dim() == 3 else field
        _add_field(values, keep, weight, shared.contiguous().flatten(2).numpy())


@kernel
def _to_whole(levels, made):  # type: ignore[no-untyped-def]
    for at in range(len(levels)):
        value = min(max(levels[at], float32(0)), float32(255))
        made[at] = uint8(np.int32((value + WHOLE) - WHOLE))


def to_whole(levels: Tensor) -> Tensor:
    """Return contiguous float32 grey levels clipped to 0 to 255 and rounded half to even, as uint8."""
    made = np.empty(levels.numel(), np.uint8)
    _to_whole(levels.flatten().numpy(), made)
    return from_numpy(made).view(levels.shape)
