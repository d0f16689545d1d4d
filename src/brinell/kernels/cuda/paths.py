"""Distances between the stops of images that move: interpolated and compared in one pass, without storing a moved image.

A moved image that is written, read and compared takes some twenty times the memory traffic. Here each program follows some
pixels along a path and keeps their values at the last stop. What an image gets doesn't depend on the others in its batch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

PIXELS, WARPS = 1024, 8  # of a program
STOPS = 16  # that a program follows
PARTS = 256  # sums that are added up at a time


@triton.jit  # type: ignore[untyped-decorator]
def _sample(plane, motion, x, y, inside, tall, wide, width, PERSPECTIVE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return a plane's values at the sources of pixels, interpolated bilinearly; 0 outside."""
    across = tl.load(motion) * x + tl.load(motion + 1) * y + tl.load(motion + 2)
    down = tl.load(motion + 3) * x + tl.load(motion + 4) * y + tl.load(motion + 5)
    if PERSPECTIVE:
        far = tl.load(motion + 6) * x + tl.load(motion + 7) * y + tl.load(motion + 8)
        inside = inside & (far > 0)  # pixels behind the camera are not seen
        far = tl.where(inside, far, 1.0)
        across, down = tl.div_rn(across, far), tl.div_rn(down, far)
    inside = inside & (across > -1) & (across < wide) & (down > -1) & (down < tall)  # False for NaN
    across, down = tl.where(inside, across, 0.0), tl.where(inside, down, 0.0)
    left, top = tl.floor(across), tl.floor(down)
    right_share, low_share = across - left, down - top
    column, row = left.to(tl.int32), top.to(tl.int32)
    at = plane + row * width + column
    in_left, in_right = inside & (column >= 0), inside & (column + 1 < wide)
    in_top, in_low = row >= 0, row + 1 < tall
    upper_left = tl.load(at, mask=in_left & in_top, other=0.0)
    upper_right = tl.load(at + 1, mask=in_right & in_top, other=0.0)
    lower_left = tl.load(at + width, mask=in_left & in_low, other=0.0)
    lower_right = tl.load(at + width + 1, mask=in_right & in_low, other=0.0)
    upper = upper_left + (upper_right - upper_left) * right_share
    lower = lower_left + (lower_right - lower_left) * right_share
    return upper + (lower - upper) * low_share


@triton.jit(do_not_specialize=["channels", "height", "width", "stops"])  # type: ignore[untyped-decorator]
def _compare_stops(  # type: ignore[no-untyped-def]  # Triton reads annotations itself
    images,
    motions,
    places,
    sums,
    channels,
    height,
    width,
    stops,
    PERSPECTIVE: tl.constexpr,
    PIXELS: tl.constexpr,
    STOPS: tl.constexpr,
):
    path, channel = tl.program_id(0) // channels, tl.program_id(0) % channels
    first = tl.program_id(2) * STOPS
    tall, wide = tl.load(places + 4 * path + 1), tl.load(places + 4 * path + 2)
    count = tl.minimum(tl.load(places + 4 * path + 3) - first, STOPS)
    pixel = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    row, column = pixel // width, pixel % width
    inside = (row < tl.where(count > 0, tall, 0)) & (column < wide)
    x = column.to(tl.float32) - (wide - 1).to(tl.float32) * 0.5
    y = row.to(tl.float32) - (tall - 1).to(tl.float32) * 0.5
    plane = images + (tl.load(places + 4 * path).to(tl.int64) * channels + channel) * height * width
    motion = motions + (path.to(tl.int64) * (stops + 1) + first) * 9
    parts = channels * tl.num_programs(1)
    target = sums + (path.to(tl.int64) * stops + first) * parts + channel * tl.num_programs(1) + tl.program_id(1)
    last = _sample(plane, motion, x, y, inside, tall, wide, width, PERSPECTIVE)
    for _ in range(count):
        motion += 9
        now = _sample(plane, motion, x, y, inside, tall, wide, width, PERSPECTIVE)
        apart = now - last
        tl.store(target, tl.sum(apart * apart, 0))
        target += parts
        last = now


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


def compare_stops(images: Tensor, motions: Tensor, places: Tensor, *, perspective: bool) -> Tensor:
    """Return squared L2 distances of images between successive stops of paths, float64 (N, K); 0 beyond a path's last stop.

    Images are float32 (B, C, H, W). `motions`, float32 (N, K + 1, 9), map a pixel's centred position to its
    source's column and row; the last three are the divisor, which only counts with `perspective`. `places`, int32 (N, 4),
    are each path's image, its height and width, and its number of stops.
    """
    _, channels, height, width = images.shape
    count, stops = motions.shape[0], motions.shape[1] - 1
    blocks = triton.cdiv(height * width, PIXELS)
    sums = torch.empty(count, stops, channels * blocks, dtype=torch.float32, device=images.device)
    totals = torch.empty(count, stops, dtype=torch.float64, device=images.device)
    if not totals.numel():
        return totals
    with torch.cuda.device_of(images):  # type: ignore[no-untyped-call]
        _compare_stops[count * channels, blocks, triton.cdiv(stops, STOPS)](
            images.contiguous(),
            motions,
            places,
            sums,
            channels,
            height,
            width,
            stops,
            PERSPECTIVE=perspective,
            PIXELS=PIXELS,
            STOPS=STOPS,
            num_warps=WARPS,
            enable_fp_fusion=False,
        )
        _add_up[count, stops](sums, places, totals, stops, channels * blocks, PARTS=PARTS, enable_fp_fusion=False)
    return totals
