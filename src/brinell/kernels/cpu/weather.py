"""Fields of fog and of snow."""

from __future__ import annotations

import numpy as np
from numpy import float32, int32
from torch import Tensor, from_numpy

from brinell.kernels.cpu.compiled import kernel

QUARTER = float32(0.25)


@kernel
def _find_centres(corners, terms, width, centres):  # type: ignore[no-untyped-def]  # Numba infers types
    """Write the means of the corners of squares, (n, n) on a torus, plus random terms (n, n)."""
    last = len(corners) - 1
    for row in range(len(corners)):
        above, below = corners[row], corners[row + 1 if row < last else 0]
        target, own = centres[row], terms[row]
        for column in range(last):
            left, right = below[column] + above[column], below[column + 1] + above[column + 1]
            target[column] = (right + left) * QUARTER + float32(int32(own[column]) >> int32(8)) * width
        left, right = below[last] + above[last], below[0] + above[0]
        target[last] = (right + left) * QUARTER + float32(int32(own[last]) >> int32(8)) * width


@kernel
def _fill_in(corners, terms, width, centres, made):  # type: ignore[no-untyped-def]
    """Write a map of twice the size, from corners (n, n) and random terms (3, n, n) of centres and of points to the right
    and below.
    """
    side = len(corners)
    _find_centres(corners, terms[0], width, centres)
    for row in range(side):
        own, middle, over = corners[row], centres[row], centres[row - 1 if row else side - 1]
        under, even, odd = corners[row + 1 if row < side - 1 else 0], made[2 * row], made[2 * row + 1]
        for column in range(side):
            corner, centre = own[column], middle[column]
            after = own[column + 1 if column < side - 1 else 0]
            before = middle[column - 1 if column else side - 1]
            right = ((over[column] + centre) + (after + corner)) * QUARTER
            below = ((before + centre) + (under[column] + corner)) * QUARTER
            even[2 * column] = corner
            even[2 * column + 1] = right + float32(int32(terms[1, row, column]) >> int32(8)) * width
            odd[2 * column] = below + float32(int32(terms[2, row, column]) >> int32(8)) * width
            odd[2 * column + 1] = centre


@kernel
def _plasma(bits, widths, found):  # type: ignore[no-untyped-def]
    octaves = widths.shape[1]
    spare, centres = np.empty_like(found[0]), np.empty(found[0].size // 4, np.float32)
    for image in range(len(bits)):
        # the last map is written to `found`
        maps = (found[image], spare) if octaves % 2 == 0 else (spare, found[image])
        maps[0][0] = 0
        for octave in range(octaves):
            area = 1 << (2 * octave)
            side = 1 << octave
            source, target = maps[octave % 2], maps[1 - octave % 2]
            terms = bits[image, area - 1 : 4 * area - 1].reshape(3, side, side)
            _fill_in(
                source[:area].reshape(side, side),
                terms,
                widths[image, octave],
                centres[:area].reshape(side, side),
                target[: 4 * area].reshape(2 * side, 2 * side),
            )


def plasma(bits: Tensor, widths: Tensor) -> Tensor:
    """Return diamond-square maps of 2**octaves pixels a side, float32 (B, side, side).

    `bits`, int32 (B, 4**octaves - 1), are the random terms, which `widths`, float32 (B, octaves), scale.
    """
    count, octaves = widths.shape
    found = np.zeros((count, 4**octaves), np.float32)
    _plasma(bits.contiguous().numpy(), widths.contiguous().numpy(), found)
    return from_numpy(found).view(count, 2**octaves, 2**octaves)


@kernel
def _lay_flakes(top, left, fallen, flake, counts):  # type: ignore[no-untyped-def]
    tall, wide = flake.shape
    for image in range(len(counts)):
        for number in range(min(fallen[image], top.shape[1])):
            first, start = top[image, number], left[image, number]
            for row in range(tall):
                target, source = counts[image, first + row, start : start + wide], flake[row]
                for column in range(wide):
                    target[column] += source[column]


def lay_flakes(top: Tensor, left: Tensor, fallen: Tensor, flake: Tensor, size: tuple[int, int]) -> Tensor:
    """Return the sums of the first flakes of each image where they lie, float32 (B, 1, H, W).

    The corners `top` and `left` of all flakes are int64 (B, flakes); `fallen`, int32 (B,), counts those that are there.
    """
    counts = np.zeros((len(top), *size), np.float32)
    _lay_flakes(top.numpy(), left.numpy(), fallen.numpy(), flake.contiguous().numpy(), counts)
    return from_numpy(counts)[:, None]
