"""Operators on single pixels, to the bits of `perturb.colour`."""

from __future__ import annotations

import numpy as np
from numpy import float32, int32, uint8
from torch import Tensor, from_numpy

from brinell.kernels.cpu.compiled import kernel


@kernel
def _fade_grey(images, made, per_value, per_spread, faded, falls):  # type: ignore[no-untyped-def]  # Numba infers types
    for image in range(len(images)):
        reds, greens, blues = images[image, 0], images[image, 1], images[image, 2]
        for at in range(len(reds)):
            red, green, blue = int32(reds[at]), int32(greens[at]), int32(blues[at])
            value = max(max(red, green), blue)
            spread = value - min(min(red, green), blue)
            saturation = (per_value[value] * spread + 2048) >> 12
            sector = blue - red + 2 * spread if value == green else red - green + 4 * spread
            sector = green - blue if value == red else sector
            hue = ((per_spread[spread] * sector + 2048) >> 12) + 180
            amount, bright = faded[saturation], float32(float32(value) * float32(1 / 255))
            for channel in range(3):
                share = float32(float32(1) - float32(falls[hue, channel] * amount))
                made[image, channel, at] = uint8(int32(float32(float32(share * bright) * float32(255))))


def fade_grey(images: Tensor, tables: tuple[Tensor, ...]) -> Tensor:
    """Fade images (B, 3, H, W), uint8, to grey by the tables of `_HsvTables`, in their order."""
    per_value, per_spread, faded, *falls = (table.numpy() for table in tables)
    given = images.contiguous().flatten(2).numpy()
    made = np.empty_like(given)
    _fade_grey(given, made, per_value, per_spread, faded, np.stack(falls, 1))
    return from_numpy(made).view(images.shape)


@kernel
def _look_up(images, made, tables, rows):  # type: ignore[no-untyped-def]
    for image in range(len(images)):
        values, target, table = images[image], made[image], tables[max(0, min(rows[image], len(tables) - 1))]
        for at in range(len(values)):
            target[at] = table[values[at]]


def look_up(images: Tensor, tables: Tensor, rows: Tensor | None = None) -> Tensor:
    """Look up values of images (B, C, H, W), uint8, in tables (R, 256), uint8.

    Image b is looked up in table `rows[b]`, or in the nearest one that there is; without `rows`, all in the first.
    """
    given = images.contiguous().flatten(1).numpy()
    made = np.empty_like(given)
    chosen = np.zeros(len(given), np.int64) if rows is None else rows.contiguous().numpy()
    _look_up(given, made, tables.numpy(), chosen)
    return from_numpy(made).view(images.shape)
