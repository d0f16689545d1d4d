"""Distances between the stops of images that move: interpolated and compared in one pass, without storing a moved image.

A moved image that is written, read and compared takes some twenty times the memory traffic. Here each program follows some
pixels of all colours along a path and keeps their values at the last stop. The motions of the stops are computed on the
device, too, so that the host has none of the exponentials of thousands of paths to compute. What an image gets doesn't
depend on the others in its batch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from brinell.kernels.cuda.bilinear import find_neighbours, interpolate

PIXELS, WARPS = 512, 4  # of a program
STOPS = 16  # that a program follows
PARTS = 256  # sums that are added up at a time
MOTIONS = 32  # of a program
# of an exponential: an element is halved so often that a series of so few terms is exact, and the result squared as often
SQUARINGS, TERMS = 16, 8


@triton.jit
def _times(a0, a1, a2, a3, a4, a5, a6, a7, a8, b0, b1, b2, b3, b4, b5, b6, b7, b8):  # type: ignore[no-untyped-def]  # Triton reads annotations itself
    """Return the product of 3x3 matrices, entry by entry, row after row."""
    c0, c1, c2 = a0 * b0 + a1 * b3 + a2 * b6, a0 * b1 + a1 * b4 + a2 * b7, a0 * b2 + a1 * b5 + a2 * b8
    c3, c4, c5 = a3 * b0 + a4 * b3 + a5 * b6, a3 * b1 + a4 * b4 + a5 * b7, a3 * b2 + a4 * b5 + a5 * b8
    c6, c7, c8 = a6 * b0 + a7 * b3 + a8 * b6, a6 * b1 + a7 * b4 + a8 * b7, a6 * b2 + a7 * b5 + a8 * b8
    return c0, c1, c2, c3, c4, c5, c6, c7, c8


@triton.jit(do_not_specialize=["count", "stops"])  # type: ignore[untyped-decorator]
def _find_motions(  # type: ignore[no-untyped-def]
    elements, along, corners, motions, count, stops, TERMS: tl.constexpr, SQUARINGS: tl.constexpr, BLOCK: tl.constexpr
):
    """Exponentials of elements of the algebra, as maps from centred positions to columns and rows."""
    item = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = item < count
    path = item // stops
    own = elements + path * 9
    share = tl.load(along + item, mask=there, other=0.0) / (1 << SQUARINGS)
    a0, a1 = tl.load(own, mask=there, other=0.0) * share, tl.load(own + 1, mask=there, other=0.0) * share
    a2, a3 = tl.load(own + 2, mask=there, other=0.0) * share, tl.load(own + 3, mask=there, other=0.0) * share
    a4, a5 = tl.load(own + 4, mask=there, other=0.0) * share, tl.load(own + 5, mask=there, other=0.0) * share
    a6, a7 = tl.load(own + 6, mask=there, other=0.0) * share, tl.load(own + 7, mask=there, other=0.0) * share
    a8 = tl.load(own + 8, mask=there, other=0.0) * share
    one, zero = tl.full((BLOCK,), 1.0, tl.float64), tl.full((BLOCK,), 0.0, tl.float64)
    e0, e1, e2, e3, e4, e5, e6, e7, e8 = one, zero, zero, zero, one, zero, zero, zero, one
    for term in tl.static_range(TERMS):  # 1 + A (1 + A/2 (1 + A/3 …))
        e0, e1, e2, e3, e4, e5, e6, e7, e8 = _times(a0, a1, a2, a3, a4, a5, a6, a7, a8, e0, e1, e2, e3, e4, e5, e6, e7, e8)
        e0, e1, e2 = e0 / (TERMS - term) + 1, e1 / (TERMS - term), e2 / (TERMS - term)
        e3, e4, e5 = e3 / (TERMS - term), e4 / (TERMS - term) + 1, e5 / (TERMS - term)
        e6, e7, e8 = e6 / (TERMS - term), e7 / (TERMS - term), e8 / (TERMS - term) + 1
    for _ in tl.static_range(SQUARINGS):
        e0, e1, e2, e3, e4, e5, e6, e7, e8 = _times(e0, e1, e2, e3, e4, e5, e6, e7, e8, e0, e1, e2, e3, e4, e5, e6, e7, e8)
    left, top = tl.load(corners + 2 * path, mask=there, other=0.0), tl.load(corners + 2 * path + 1, mask=there, other=0.0)
    scale = tl.where((e6 == 0) & (e7 == 0), e8, 1.0)
    target = motions + item.to(tl.int64) * 9
    tl.store(target, ((e0 - left * e6) / scale).to(tl.float32), mask=there)
    tl.store(target + 1, ((e1 - left * e7) / scale).to(tl.float32), mask=there)
    tl.store(target + 2, ((e2 - left * e8) / scale).to(tl.float32), mask=there)
    tl.store(target + 3, ((e3 - top * e6) / scale).to(tl.float32), mask=there)
    tl.store(target + 4, ((e4 - top * e7) / scale).to(tl.float32), mask=there)
    tl.store(target + 5, ((e5 - top * e8) / scale).to(tl.float32), mask=there)
    tl.store(target + 6, (e6 / scale).to(tl.float32), mask=there)
    tl.store(target + 7, (e7 / scale).to(tl.float32), mask=there)
    tl.store(target + 8, (e8 / scale).to(tl.float32), mask=there)


@triton.jit(do_not_specialize=["groups", "height", "width", "stops"])  # type: ignore[untyped-decorator]
def _compare_stops(  # type: ignore[no-untyped-def]
    images,
    motions,
    places,
    sums,
    groups,
    height,
    width,
    stops,
    PERSPECTIVE: tl.constexpr,
    COLOURED: tl.constexpr,
    PIXELS: tl.constexpr,
    STOPS: tl.constexpr,
):
    """Sums of squares of one channel, or with `COLOURED` of three."""
    path, group = tl.program_id(0) // groups, tl.program_id(0) % groups
    first = tl.program_id(2) * STOPS
    tall, wide = tl.load(places + 4 * path + 1), tl.load(places + 4 * path + 2)
    count = tl.minimum(tl.load(places + 4 * path + 3) - first, STOPS)
    pixel = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    row, column = pixel // width, pixel % width
    inside = (row < tl.where(count > 0, tall, 0)) & (column < wide)
    x = column.to(tl.float32) - (wide - 1).to(tl.float32) * 0.5
    y = row.to(tl.float32) - (tall - 1).to(tl.float32) * 0.5
    area, motion = height * width, motions + (path.to(tl.int64) * (stops + 1) + first) * 9
    parts = groups * tl.num_programs(1)
    target = sums + (path.to(tl.int64) * stops + first) * parts + group * tl.num_programs(1) + tl.program_id(1)
    red = images + (tl.load(places + 4 * path).to(tl.int64) * groups + group) * area * (3 if COLOURED else 1)
    green, blue = red + area, red + 2 * area
    at, right, low, upper_left, upper_right, lower_left, lower_right = find_neighbours(
        motion, x, y, inside, tall, wide, width, PERSPECTIVE
    )
    last_red = interpolate(red, width, at, right, low, upper_left, upper_right, lower_left, lower_right)
    if COLOURED:
        last_green = interpolate(green, width, at, right, low, upper_left, upper_right, lower_left, lower_right)
        last_blue = interpolate(blue, width, at, right, low, upper_left, upper_right, lower_left, lower_right)
    for _ in range(count):
        motion += 9
        place, beside, below, first_in, second_in, third_in, fourth_in = find_neighbours(
            motion, x, y, inside, tall, wide, width, PERSPECTIVE
        )
        now_red = interpolate(red, width, place, beside, below, first_in, second_in, third_in, fourth_in)
        apart = (now_red - last_red) * (now_red - last_red)
        last_red = now_red
        if COLOURED:
            now_green = interpolate(green, width, place, beside, below, first_in, second_in, third_in, fourth_in)
            now_blue = interpolate(blue, width, place, beside, below, first_in, second_in, third_in, fourth_in)
            apart += (now_green - last_green) * (now_green - last_green)
            apart += (now_blue - last_blue) * (now_blue - last_blue)
            last_green, last_blue = now_green, now_blue
        tl.store(target, tl.sum(apart, 0))
        target += parts


@triton.jit(do_not_specialize=["stops", "parts"])  # type: ignore[untyped-decorator]
def _add_up(sums, places, totals, stops, parts, PARTS: tl.constexpr):  # type: ignore[no-untyped-def]
    path, stop = tl.program_id(0), tl.program_id(1)
    place = path.to(tl.int64) * stops + stop
    known = tl.where(stop < tl.load(places + 4 * path + 3), parts, 0)
    total = tl.zeros((PARTS,), tl.float64)
    for first in range(0, parts, PARTS):
        part = first + tl.arange(0, PARTS)
        total += tl.load(sums + place * parts + part, mask=part < known, other=0.0).to(tl.float64)
    tl.store(totals + place, tl.sum(total, 0))


def find_motions(elements: Tensor, along: Tensor, corners: Tensor) -> Tensor:
    """Return motions, float32 (N, K, 9), that are distances (N, K) along elements (N, 3, 3) of the algebra, float64.

    They map centred positions to columns and rows, given the centred positions of images' first pixels, float64 (N, 2). The
    last three numbers are the divisor; it is 1 where the first two are 0.
    """
    count, stops = along.shape
    motions = torch.empty(count, stops, 9, dtype=torch.float32, device=along.device)
    if motions.numel():
        with torch.cuda.device_of(along):  # type: ignore[no-untyped-call]
            _find_motions[triton.cdiv(along.numel(), MOTIONS),](
                elements.contiguous(),
                along.contiguous(),
                corners.contiguous(),
                motions,
                along.numel(),
                stops,
                TERMS=TERMS,
                SQUARINGS=SQUARINGS,
                BLOCK=MOTIONS,
                num_warps=1,
                enable_fp_fusion=False,
            )
    return motions


def compare_stops(images: Tensor, motions: Tensor, places: Tensor, *, perspective: bool) -> Tensor:
    """Return squared L2 distances of images between successive stops of paths, float64 (N, K); 0 beyond a path's last stop.

    Images are float32 (B, C, H, W), and `motions`, float32 (N, K + 1, 9), as `find_motions` returns them: the divisor only
    counts with `perspective`. `places`, int32 (N, 4), are each path's image, its height and width, and its number of stops.
    """
    _, channels, height, width = images.shape
    count, stops = motions.shape[0], motions.shape[1] - 1
    coloured, blocks = channels == 3, triton.cdiv(height * width, PIXELS)
    groups = 1 if coloured else channels
    sums = torch.empty(count, stops, groups * blocks, dtype=torch.float32, device=images.device)
    totals = torch.empty(count, stops, dtype=torch.float64, device=images.device)
    if not totals.numel():
        return totals
    with torch.cuda.device_of(images):  # type: ignore[no-untyped-call]
        _compare_stops[count * groups, blocks, triton.cdiv(stops, STOPS)](
            images.contiguous(),
            motions,
            places,
            sums,
            groups,
            height,
            width,
            stops,
            PERSPECTIVE=perspective,
            COLOURED=coloured,
            PIXELS=PIXELS,
            STOPS=STOPS,
            num_warps=WARPS,
            enable_fp_fusion=False,
        )
        _add_up[count, stops](sums, places, totals, stops, groups * blocks, PARTS=PARTS, enable_fp_fusion=False)
    return totals
