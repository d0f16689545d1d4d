"""Projective warps of images: a row at a time, with up to four channels of a pixel in one word."""

from __future__ import annotations

import numpy as np
from numpy import float32, float64, int32, uint64
from torch import Tensor, from_numpy

from brinell.kernels.cpu.compiled import kernel

PARTS, BITS = 256, 8  # of a pixel
FRAME = 2  # black pixels around an image, which positions outside of it point to
LANES = 4  # channels in a word: 16 bits hold a grey level times PARTS
EVEN = uint64(0x0000FFFF0000FFFF)
WHOLE = 6755399441055744.0  # a sum from 2**52 on has no fraction: it is rounded half to even


@kernel
def _pack(image, words, height, width):  # type: ignore[no-untyped-def]  # Numba infers types
    """Write the channels of an image (C, H·W) to the middle of framed words."""
    across = width + 2 * FRAME
    for row in range(height):
        start = (row + FRAME) * across + FRAME
        target = words[start : start + width]
        target[:] = 0
        for channel in range(len(image)):
            source = image[channel, row * width : (row + 1) * width]
            for at in range(width):
                target[at] |= uint64(source[at]) << uint64(16 * channel)


@kernel
def _find_sources(back, y, flat, columns, rows, height, width):  # type: ignore[no-untyped-def]
    """Write where the pixels of a row come from, in parts of a pixel, as `source_positions` adds them up."""
    low, right, bottom = float64(-FRAME * PARTS), float64(width * PARTS), float64(height * PARTS)
    down_x, down_y = back[0, 1] * y + back[0, 2], back[1, 1] * y + back[1, 2]
    down_z = back[2, 1] * y + back[2, 2]
    for x in range(len(columns)):
        column, row = back[0, 0] * x + down_x, back[1, 0] * x + down_y
        if not flat:
            depth = (back[2, 0] * x + down_z) / PARTS
            ahead = depth > 0
            depth = depth if ahead else 1.0
            column, row = (column / depth if ahead else low), (row / depth if ahead else low)
        column, row = (column if column > low else low), (row if row > low else low)  # low, if it is no number
        columns[x] = int32((min(column, right) + WHOLE) - WHOLE)
        rows[x] = int32((min(row, bottom) + WHOLE) - WHOLE)


@kernel
def _between(first, second, part):  # type: ignore[no-untyped-def]
    """Return first·(PARTS - part) + second·part, in all lanes: what is borrowed from the next lane is given back."""
    return (first << uint64(BITS)) + (second - first) * part


@kernel
def _blend_row(words, columns, rows, across, sums):  # type: ignore[no-untyped-def]
    """Write the weighted sums of the four pixels around each source, (2, W): 32 bits each for channels 0, 2 and 1, 3."""
    frame, one, part = FRAME * PARTS, uint64(1), uint64(PARTS - 1)
    for x in range(len(columns)):
        column, row = uint64(columns[x] + frame), uint64(rows[x] + frame)
        first = (row >> uint64(BITS)) * across + (column >> uint64(BITS))
        below = first + across
        upper = _between(words[first], words[first + one], column & part)
        lower = _between(words[below], words[below + one], column & part)
        sums[0, x] = _between(upper & EVEN, lower & EVEN, row & part)
        sums[1, x] = _between((upper >> uint64(16)) & EVEN, (lower >> uint64(16)) & EVEN, row & part)


@kernel
def _unpack(sums, made):  # type: ignore[no-untyped-def]
    """Write weighted sums as the grey levels of a row, (C, W)."""
    for channel in range(len(made)):
        source, target, shift = sums[channel & 1], made[channel], uint64(16 * (channel & 2))
        for x in range(len(target)):
            target[x] = float32(int32((source[x] >> shift) & uint64(0xFFFFFFFF))) * float32(1.0 / (PARTS * PARTS))


@kernel
def _warp(images, back, flat, made, height, width):  # type: ignore[no-untyped-def]
    across = width + 2 * FRAME
    words = np.zeros(across * (height + 2 * FRAME), np.uint64)
    columns, rows, sums = np.empty(width, np.int32), np.empty(width, np.int32), np.empty((2, width), np.uint64)
    for image in range(len(images)):
        for channel in range(0, images.shape[1], LANES):
            own = images[image, channel : channel + LANES]
            _pack(own, words, height, width)
            for y in range(height):
                _find_sources(back[image], float64(y), flat, columns, rows, height, width)
                target = made[image, channel : channel + LANES, y * width : (y + 1) * width]
                _blend_row(words, columns, rows, uint64(across), sums)
                _unpack(sums, target)


def warp(images: Tensor, back: Tensor, *, flat: bool, parts: int) -> Tensor:
    """Return uint8 images (B, C, H, W) interpolated between pixels, black outside, as float32.

    `back`, float64 (B, 3, 3), maps a pixel's (x, y, 1) to its source, in `parts` of a pixel; it is affine if `flat`.
    """
    assert parts == PARTS
    height, width = images.shape[2:]
    given = images.contiguous().flatten(2).numpy()
    made = np.empty(given.shape, np.float32)
    _warp(given, back.numpy(), flat, made, height, width)
    return from_numpy(made).view(images.shape)
