"""Kernels of `perturb.smear`: weighted sums of neighbours along an axis, as products of matrices of bytes.

Tensor cores multiply bytes exactly. A pixel below 2¹⁵ is 128 + a + 256·b, and a weight is a sum of digits of 7 bits.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

LINES, TARGETS, SOURCES = 64, 64, 32  # lines across the axis, target and source pixels along it, at once
BLOCK = 1024  # weights of a program
DIGIT = 7  # bits


@triton.jit(do_not_specialize=["side"])  # type: ignore[untyped-decorator]
def _fold(  # type: ignore[no-untyped-def]  # Triton reads annotations itself
    circle, made, side, padded, EDGE: tl.constexpr, DIGITS: tl.constexpr, DIGIT: tl.constexpr, BLOCK: tl.constexpr
):
    image = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    source, target = at % padded, at // padded
    period = 2 * side - 2 * EDGE
    circle += image.to(tl.int64) * period
    inside = (source < side) & (target < side)
    direct = source - target
    weight = tl.load(circle + tl.where(direct < 0, direct + period, direct), mask=inside, other=0)
    # what lies outside is seen in a mirror, the pixel at the edge itself only if EDGE is 0
    inside = inside & (source >= EDGE) & (source < side - EDGE)
    weight += tl.load(circle + (period - 1 + EDGE - source - target), mask=inside, other=0)
    made += image.to(tl.int64) * DIGITS * padded * padded
    for digit in tl.static_range(DIGITS):
        part = weight >> (DIGIT * digit)
        if digit < DIGITS - 1:
            part = part & ((1 << DIGIT) - 1)
        tl.store(made + at, part.to(tl.int8), mask=at < padded * padded)
        made += padded * padded


@triton.jit(do_not_specialize=["channels", "height", "width", "reach"])  # type: ignore[untyped-decorator]
def _multiply(  # type: ignore[no-untyped-def]
    images,
    weights,
    sums,
    made,
    channels,
    height,
    width,
    padded,
    reach,
    UNIT: tl.constexpr,
    ACROSS: tl.constexpr,
    PIXEL_DIGITS: tl.constexpr,
    DIGITS: tl.constexpr,
    DIGIT: tl.constexpr,
    LINES: tl.constexpr,
    TARGETS: tl.constexpr,
    SOURCES: tl.constexpr,
):
    plane = tl.program_id(0)
    image = plane // channels
    side = width if ACROSS else height
    others = height if ACROSS else width
    start = plane.to(tl.int64) * height * width
    line = (tl.program_id(1) * LINES + tl.arange(0, LINES))[:, None]
    target = (tl.program_id(2) * TARGETS + tl.arange(0, TARGETS))[None, :]
    # whole tiles of sources that are within reach
    low = tl.maximum(tl.program_id(2) * TARGETS - reach, 0) // SOURCES
    high = tl.minimum(tl.program_id(2) * TARGETS + TARGETS + reach, side)
    high = (high + SOURCES - 1) // SOURCES
    total = tl.full((LINES, TARGETS), 0, tl.int32)
    for tile in range(low, high):
        source = tile * SOURCES + tl.arange(0, SOURCES)
        along = source[None, :]
        place = line * width + along if ACROSS else along * width + line
        pixel = tl.load(images + start + place, mask=(line < others) & (along < side), other=0.0).to(tl.int32)
        small = ((pixel & 255) - 128).to(tl.int8)
        own = weights + image.to(tl.int64) * DIGITS * padded * padded + (target * padded + source[:, None])
        for digit in tl.static_range(DIGITS):
            part = tl.load(own + digit * padded * padded)
            total += tl.dot(small, part) << (DIGIT * digit)
            if PIXEL_DIGITS == 2:
                total += tl.dot((pixel >> 8).to(tl.int8), part) << (8 + DIGIT * digit)
    value = (total + 128 * tl.load(sums + image)).to(tl.float32) * UNIT
    place = line * width + target if ACROSS else target * width + line
    tl.store(made + start + place, value, mask=(line < others) & (target < side))


def weighted_sums(images: Tensor, circle: Tensor, axis: int, *, reach: int, bits: tuple[int, int], unit: float) -> Tensor:
    """Return sums of neighbours along an axis times a power of two, float32 (B, C, H, W).

    Images are whole numbers in float32. `circle`, int32 (B, period), holds the weights of offsets modulo the period of the
    reflected axis, which is 2n, or 2n - 2 if the edge is not repeated; farther away than `reach` they are 0. Pixels, of up
    to 15, and the weights of pixels have so many `bits`; sums have up to 24.
    """
    count, channels, height, width = images.shape
    across = axis == -1
    side, others = (width, height) if across else (height, width)
    padded, digits = triton.cdiv(side, TARGETS) * TARGETS, triton.cdiv(bits[1], DIGIT)
    images = images.contiguous()
    made = torch.empty_like(images)
    weights = circle.new_empty(count, digits, padded, padded, dtype=torch.int8)
    with torch.cuda.device_of(images):  # type: ignore[no-untyped-call]
        _fold[count, triton.cdiv(padded * padded, BLOCK)](
            circle, weights, side, padded, EDGE=side - circle.shape[1] // 2, DIGITS=digits, DIGIT=DIGIT, BLOCK=BLOCK
        )
        _multiply[count * channels, triton.cdiv(others, LINES), padded // TARGETS](
            images,
            weights,
            circle.sum(1, dtype=torch.int32),
            made,
            channels,
            height,
            width,
            padded,
            reach,
            UNIT=unit,
            ACROSS=across,
            PIXEL_DIGITS=1 if bits[0] <= 8 else 2,
            DIGITS=digits,
            DIGIT=DIGIT,
            LINES=LINES,
            TARGETS=TARGETS,
            SOURCES=SOURCES,
        )
    return made
