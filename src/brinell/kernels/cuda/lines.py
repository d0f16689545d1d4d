"""Anti-aliased lines, one per image: `perturb.occlusion.line_coverage` and the blending, in one launch."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from brinell.kernels.cuda.hashed_draws import draw_below

STEPS = 128  # steps along the line of a program
ONE = tl.constexpr(1 << 16)  # 1 in the fixed-point numbers of OpenCV's line drawing


@triton.jit
def _divide(above, below):  # type: ignore[no-untyped-def]  # Triton reads annotations itself
    """Divide by a positive number, towards zero."""
    size = tl.abs(above) // below
    return tl.where(above < 0, -size, size)


@triton.jit
def _draw_ends(key, height, width):  # type: ignore[no-untyped-def]
    """Draw a start at the top or left edge and an end at the bottom or right edge, in fixed point."""
    from_left, to_right = draw_below(key, 0, 2, 0) == 0, draw_below(key, 1, 2, 0) == 0
    x1 = tl.where(from_left, 0, draw_below(key, 0, width, 1)).to(tl.int64) << 16
    y1 = tl.where(from_left, draw_below(key, 0, height, 2), 0).to(tl.int64) << 16
    x2 = tl.where(to_right, width, draw_below(key, 1, width, 1)).to(tl.int64) << 16
    y2 = tl.where(to_right, draw_below(key, 1, height, 2), height).to(tl.int64) << 16
    # an end one pixel past an edge moves along the line back to the edge, by one unit
    right, bottom = (width.to(tl.int64) << 16) - 1, (height.to(tl.int64) << 16) - 1
    slide = _divide(x1 - x2, tl.maximum(y2 - y1, 1))
    climb = _divide(y1 - y2, tl.maximum(x2 - x1, 1))
    across, down = tl.where(y2 > bottom, x2 + slide, x2), tl.where(x2 > right, y2 + climb, y2)
    return x1, y1, tl.minimum(across, right), tl.minimum(down, bottom)


@triton.jit
def _weigh(full, first, final, since, until):  # type: ignore[no-untyped-def]
    """Return the weight of each step: the slope's full weight, reduced near both ends by their fractions of a pixel."""
    head, tail = ((0x78 - first) | 4) * full, (final | 4) * full
    both, more = (((final - first) & 0x78) | 4) * full, ((final - first + 0x80) | 4) * full
    at_first = tl.where(until <= 0, 0, tl.where(until == 1, both, head))
    at_second = tl.where(until <= 0, both, tl.where(until == 1, more, head + (full << 7)))
    later = tl.where(until <= 0, tail, tl.where(until == 1, tail + (full << 7), full << 8))
    return (tl.where(since == 0, at_first, tl.where(since == 1, at_second, later)) >> 8) & 0x1FF


@triton.jit(do_not_specialize=["colour", "height", "width"])  # type: ignore[untyped-decorator]
def _draw_line(  # type: ignore[no-untyped-def]
    images, keys, filters, slopes, colour, height, width, CHANNELS: tl.constexpr, STEPS: tl.constexpr
):
    image = tl.program_id(1)
    x1, y1, x2, y2 = _draw_ends(tl.load(keys + image), height, width)
    wide = tl.abs(x2 - x1) > tl.abs(y2 - y1)
    start, stop = tl.where(wide, x1, y1), tl.where(wide, x2, y2)
    side1, side2 = tl.where(wide, y1, x1), tl.where(wide, y2, x2)
    main1, main2 = tl.minimum(start, stop), tl.maximum(start, stop)
    cross1, cross2 = tl.where(stop < start, side2, side1), tl.where(stop < start, side1, side2)

    slope = _divide((cross2 - cross1) << 16, (main2 - main1) | 1)
    main2 += ONE
    last = (main2 >> 16) - (main1 >> 16)
    cross = cross1 + ((slope * -(main1 & (ONE - 1))) >> 16) + ONE // 2

    count = tl.program_id(0) * STEPS + tl.arange(0, STEPS)
    across = cross + slope * count
    distance = (across >> 11) & 31
    sixteenths = (slope >> 11) & 0x3F
    sixteenths = tl.where(slope < 0, sixteenths ^ 0x3F, sixteenths)
    full = tl.where(sixteenths >= 32, 256, tl.load(slopes + tl.minimum(sixteenths, 31)))
    ends = _weigh(full, (main1 >> 9) & 0x78, (main2 >> 9) & 0x78, count, last - count)
    main, images = (main1 >> 16) + count, images + image.to(tl.int64) * CHANNELS * height * width
    for offset in tl.static_range(-1, 2):
        if offset == -1:
            away = distance + 32
        elif offset == 0:
            away = distance
        else:
            away = 63 - distance
        alpha = (((ends * tl.load(filters + away)) >> 8) & 0xFF).to(tl.int32)
        side = (across >> 16) + offset
        row, column = tl.where(wide, side, main), tl.where(wide, main, side)
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width) & (count <= last)
        for channel in tl.static_range(CHANNELS):
            pixel = images + channel * height * width + row * width + column
            value = tl.load(pixel, mask=inside, other=0).to(tl.int32)
            value += ((colour - value) * alpha + 127) >> 8
            value += ((colour - value) * alpha + 127) >> 8  # OpenCV blends the colour in twice
            tl.store(pixel, value.to(tl.uint8), mask=inside)


def draw_line(images: Tensor, keys: Tensor, tables: tuple[Tensor, Tensor], colour: int) -> Tensor:
    """Draw one line in every image (B, C, H, W); `tables` are weights by the distance from the line and by its slope."""
    batch, channels, height, width = images.shape
    made = images.clone(memory_format=torch.contiguous_format)
    with torch.cuda.device_of(images):  # type: ignore[no-untyped-call]
        _draw_line[triton.cdiv(max(height, width) + 2, STEPS), batch](
            made, keys, *tables, colour, height, width, CHANNELS=channels, STEPS=STEPS
        )
    return made
