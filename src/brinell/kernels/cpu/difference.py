"""Kernels that measure how far images are from clean ones, and their mean grey value.

Images are summed in whole numbers, so that the order does not matter, and rounded as in `perturb.difference`.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy import int64, uint8, uint32
from torch import Tensor

from brinell.kernels.cpu.compiled import kernel

RUN = 1 << 14  # values of which a sum of squares, at most 255² each, fits into 32 bits


@kernel
def _gaps(clean, changed, found):  # type: ignore[no-untyped-def]  # Numba infers types
    """Write the pixels and the values that differ, the sums of gaps and of their squares, and the largest gap."""
    count, channels, area = changed.shape
    differs = np.empty(min(area, RUN), np.uint8)
    for image in range(count):
        before = clean[image if len(clean) == count else 0]
        after = changed[image]
        pixels, values, total, squares, largest = int64(0), int64(0), int64(0), int64(0), uint8(0)
        for start in range(0, area, RUN):
            size = min(RUN, area - start)
            differs[:size] = 0
            for channel in range(channels):
                old, new = before[channel, start : start + size], after[channel, start : start + size]
                some, sums, powers = uint32(0), uint32(0), uint32(0)
                for at in range(size):
                    gap = uint8(max(old[at], new[at]) - min(old[at], new[at]))
                    differs[at] |= gap
                    largest = max(largest, gap)
                    some = uint32(some + uint32(gap != 0))
                    sums = uint32(sums + uint32(gap))
                    powers = uint32(powers + uint32(gap) * uint32(gap))
                values += some
                total += sums
                squares += powers
            touched = uint32(0)
            for at in range(size):
                touched = uint32(touched + uint32(differs[at] != 0))
            pixels += touched
        found[0, image], found[1, image], found[2, image] = pixels, values, total
        found[3, image], found[4, image] = squares, largest


def distances(clean: Tensor, changed: Tensor) -> Tensor:
    """Return the fields of a `Difference`, float32 (7, T), of images (T, C, H, W) from clean ones or from one, uint8."""
    assert clean.shape[1:] == changed.shape[1:] and len(clean) in (1, len(changed)) and clean.dtype == torch.uint8
    found = np.empty((5, len(changed)), np.int64)
    _gaps(clean.contiguous().flatten(2).numpy(), changed.contiguous().flatten(2).numpy(), found)
    pixels, l0, total, squares, linf = found
    share, values = pixels.astype(np.float32) / np.float32(changed.shape[2:].numel()), changed[0].numel()
    l1, l2, mae, mse = total / 255, np.sqrt(squares) / 255, total / (255 * values), squares / (255**2 * values)
    return torch.from_numpy(np.array([share, l0, l1, l2, linf / 255, mae, mse], np.float32))


@kernel
def _sums(images, sums):  # type: ignore[no-untyped-def]
    for image in range(len(images)):
        total = int64(0)
        for start in range(0, images.shape[1], RUN):
            values, part = images[image, start : start + RUN], uint32(0)
            for at in range(len(values)):
                part = uint32(part + uint32(values[at]))
            total += part
        sums[image] = total


def mean_grey(images: Tensor) -> Tensor:
    """Return the mean of all values of each image (N, C, H, W), uint8: their exact sum, rounded and divided in float32."""
    sums = np.empty(len(images), np.int64)
    _sums(images.contiguous().flatten(1).numpy(), sums)
    return torch.from_numpy(sums.astype(np.float32) / np.float32(images[0].numel()))
