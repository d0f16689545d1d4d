"""Kernel of `perturb.warp`: projective warps of images."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 512  # pixels of a program


@triton.jit
def _whole(position, low, high):  # type: ignore[no-untyped-def]  # Triton reads annotations itself
    position = tl.minimum(tl.maximum(position, low), high)
    # a sum from 2**52 on has no fraction: it is rounded half to even
    return ((position + 6755399441055744.0) - 6755399441055744.0).to(tl.int32)


@triton.jit
def _read(plane, row, column, height, width):  # type: ignore[no-untyped-def]
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    return tl.load(plane + row * width + column, mask=inside, other=0).to(tl.int32)


@triton.jit(do_not_specialize=["height", "width"])  # type: ignore[untyped-decorator]
def _warp(  # type: ignore[no-untyped-def]
    images,
    back,
    made,
    height,
    width,
    CHANNELS: tl.constexpr,
    FLAT: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    image = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x, y = (at % width).to(tl.float64), (at // width).to(tl.float64)
    own = back + image * 9
    # the sum of a column's and a row's contribution, as `source_positions` adds them up
    column = tl.load(own) * x + (tl.load(own + 1) * y + tl.load(own + 2))
    row = tl.load(own + 3) * x + (tl.load(own + 4) * y + tl.load(own + 5))
    if not FLAT:
        depth = (tl.load(own + 6) * x + (tl.load(own + 7) * y + tl.load(own + 8))) / PARTS
        ahead = depth > 0
        depth = tl.where(ahead, depth, 1.0)
        column, row = tl.where(ahead, column / depth, -2.0 * PARTS), tl.where(ahead, row / depth, -2.0 * PARTS)
    low, high = -2.0 * PARTS, 2.0 * PARTS * (tl.maximum(height, width) + 1)
    column, row = _whole(column, low, high), _whole(row, low, high)
    # shifted up, so that quotients are rounded down
    left, top = (column + 2 * PARTS) // PARTS - 2, (row + 2 * PARTS) // PARTS - 2
    along, down = column - left * PARTS, row - top * PARTS
    plane = images + image.to(tl.int64) * CHANNELS * height * width
    target = made + image.to(tl.int64) * CHANNELS * height * width + at
    for _ in tl.static_range(CHANNELS):
        upper = _read(plane, top, left, height, width) * (PARTS - along)
        upper += _read(plane, top, left + 1, height, width) * along
        lower = _read(plane, top + 1, left, height, width) * (PARTS - along)
        lower += _read(plane, top + 1, left + 1, height, width) * along
        total = upper * (PARTS - down) + lower * down
        tl.store(target, total.to(tl.float32) * (1.0 / (PARTS * PARTS)), mask=at < height * width)
        plane += height * width
        target += height * width


def warp(images: Tensor, back: Tensor, *, flat: bool, parts: int) -> Tensor:
    """Return uint8 images (B, C, H, W) interpolated between pixels, black outside, as float32.

    `back`, float64 (B, 3, 3), maps a pixel's (x, y, 1) to its source, in `parts` of a pixel; it is affine if `flat`.
    """
    count, channels, height, width = images.shape
    made = torch.empty(images.shape, dtype=torch.float32, device=images.device)
    with torch.cuda.device_of(images):  # type: ignore[no-untyped-call]
        _warp[count, triton.cdiv(height * width, BLOCK)](
            images.contiguous(),
            back,
            made,
            height,
            width,
            CHANNELS=channels,
            FLAT=flat,
            PARTS=parts,
            BLOCK=BLOCK,
            enable_fp_fusion=False,
        )
    return made
