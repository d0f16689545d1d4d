"""Rectangles changed one after the other, and black boxes: one program draws and changes all rectangles of a plane.

Planes don't depend on each other, and there are enough of them in a batch to fill a device.
"""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from brinell.kernels.cuda.hashed_draws import draw_below

LONGEST, TILE = 10, 16  # longest side of a blurred rectangle, and of the tile that holds it
WARPS = 1  # of a program that waits for memory most of the time
BOXES, SIDE = 16, 8  # boxes of a program, and the side of the tile that holds one


@triton.jit  # type: ignore[untyped-decorator]
def _draw_patch(key, number, height, width, LONGEST: tl.constexpr):  # type: ignore[no-untyped-def]  # Triton reads annotations itself
    """Draw rectangles as `draw_patches` does: top, left, height and width."""
    tall = draw_below(key, number, tl.minimum(LONGEST, height) - 1, 0) + 2
    wide = draw_below(key, number, tl.minimum(LONGEST, width) - 1, 1) + 2
    top = draw_below(key, number, height - tall + 1, 2)
    left = draw_below(key, number, width - wide + 1, 3)
    return top, left, tall, wide


@triton.jit(do_not_specialize=["count", "channels", "height", "width"])  # type: ignore[untyped-decorator]
def _blur_patches(  # type: ignore[no-untyped-def]
    images, keys, taps, count, channels, height, width, MEAN: tl.constexpr, LONGEST: tl.constexpr, TILE: tl.constexpr
):
    program = tl.program_id(0)
    key = tl.load(keys + program // channels)
    plane = images + program.to(tl.int64) * height * width
    row, column = tl.arange(0, TILE)[:, None], tl.arange(0, TILE)[None, :]
    top, left, tall, wide = _draw_patch(key, 0, height, width, LONGEST)
    for number in range(count):
        pixel = (top + row) * width + left + column
        inside = (row < tall) & (column < wide) & (pixel < height * width)
        if not MEAN:
            # one-dimensional, so that the compiler arranges the pixels of an image by their own order in memory
            down = tl.load(taps + tall * (TILE * TILE) + tl.arange(0, TILE * TILE))
            across = tl.load(taps + wide * (TILE * TILE) + tl.arange(0, TILE * TILE))
        old = tl.load(plane + pixel, mask=inside, other=0)
        if MEAN:  # rounded half to even
            area = tall * wide
            twice = 2 * tl.sum(tl.sum(old.to(tl.int32), 1), 0) + area
            new = twice // (2 * area)
            new -= ((twice % (2 * area) == 0) & (new % 2 == 1)).to(tl.int32)
        else:
            # sums of five pixels down and across are products with small whole numbers: at most 1275 and 6375, so that
            # float16 and float32 hold them exactly
            sums = tl.dot(tl.reshape(down, (TILE, TILE)), old.to(tl.float16)).to(tl.float16)
            sums = tl.dot(sums, tl.trans(tl.reshape(across, (TILE, TILE))))
            new = (sums.to(tl.int32) + 12) // 25  # a mean of 25 whole numbers is never half-way between two
        top, left, tall, wide = _draw_patch(key, number + 1, height, width, LONGEST)  # while memory is waited for
        tl.debug_barrier()
        tl.store(plane + pixel, new.to(tl.uint8), mask=inside)
        tl.debug_barrier()


@cache
def _taps(device: torch.device) -> Tensor:
    """Return how often each pixel is among the five around another one, (side, other, pixel), reflected within the side."""
    table = torch.zeros(LONGEST + 1, TILE, TILE, dtype=torch.float16)
    for side in range(2, LONGEST + 1):
        for other in range(side):
            for turn in (position % (2 * side - 2) for position in range(other - 2, other + 3)):
                table[side, other, min(turn, 2 * side - 2 - turn)] += 1
    return table.to(device)


def blur_patches(images: Tensor, keys: Tensor, count: int, *, mean: bool) -> Tensor:
    """Blur `count` drawn rectangles one after the other within their borders, or replace them by their mean colours.

    Images are (B, C, H, W), keys those of their draws.
    """
    batch, channels, height, width = images.shape
    made = images.clone(memory_format=torch.contiguous_format)
    with torch.cuda.device_of(images):  # type: ignore[no-untyped-call]
        _blur_patches[(batch * channels,)](
            made,
            keys,
            _taps(images.device),
            count,
            channels,
            height,
            width,
            MEAN=mean,
            LONGEST=LONGEST,
            TILE=TILE,
            num_warps=WARPS,
        )
    return made


@triton.jit(do_not_specialize=["count", "height", "width"])  # type: ignore[untyped-decorator]
def _draw_boxes(  # type: ignore[no-untyped-def]
    images,
    keys,
    count,
    height,
    width,
    CHANNELS: tl.constexpr,
    EXTRA: tl.constexpr,
    BOXES: tl.constexpr,
    SIDE: tl.constexpr,
):
    image = tl.program_id(1)
    number = tl.program_id(0) * BOXES + tl.arange(0, BOXES)[:, None, None]
    row, column = tl.arange(0, SIDE)[None, :, None], tl.arange(0, SIDE)[None, None, :]
    top, left, tall, wide = _draw_patch(tl.load(keys + image), number, height, width, 5)
    inside = (number < count) & (row < tall + EXTRA) & (column < wide + EXTRA) & (top + row < height)
    inside &= left + column < width
    pixel = (top + row) * width + left + column
    for channel in tl.static_range(CHANNELS):
        plane = images + (image.to(tl.int64) * CHANNELS + channel) * height * width
        tl.store(plane + pixel, tl.full((BOXES, SIDE, SIDE), 0, tl.uint8), mask=inside)


def draw_boxes(images: Tensor, keys: Tensor, count: int, *, extra: int) -> Tensor:
    """Draw `count` black boxes with sides of 2 to 5 pixels, and `extra` ones at the bottom and the right."""
    batch, channels, height, width = images.shape
    made = images.clone(memory_format=torch.contiguous_format)
    with torch.cuda.device_of(images):  # type: ignore[no-untyped-call]
        _draw_boxes[triton.cdiv(count, BOXES), batch](
            made, keys, count, height, width, CHANNELS=channels, EXTRA=extra, BOXES=BOXES, SIDE=SIDE
        )
    return made
