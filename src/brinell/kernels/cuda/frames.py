"""Kernel of `motion.frames`: images under motions, without a grid of positions and without copies of the images."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from brinell.kernels.cuda.bilinear import find_neighbours, interpolate

PIXELS, WARPS = 512, 4  # of a program


@triton.jit(do_not_specialize=["height", "width", "rows", "columns"])  # type: ignore[untyped-decorator]
def _move(  # type: ignore[no-untyped-def]  # Triton reads annotations itself
    images,
    motions,
    places,
    x_of,
    y_of,
    moved,
    height,
    width,
    rows,
    columns,
    X_STRIDE: tl.constexpr,
    Y_STRIDE: tl.constexpr,
    CLIPPED: tl.constexpr,
    PERSPECTIVE: tl.constexpr,
    CHANNELS: tl.constexpr,
    PIXELS: tl.constexpr,
):
    image = tl.program_id(0)
    own, tall, wide = tl.load(places + 3 * image), tl.load(places + 3 * image + 1), tl.load(places + 3 * image + 2)
    pixel = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    row, column = pixel // columns, pixel % columns
    real = row < rows
    x = tl.load(x_of + image * columns * X_STRIDE + column, mask=real, other=0.0)
    y = tl.load(y_of + image * rows * Y_STRIDE + row, mask=real, other=0.0)
    inside = real & (row < tall) & (column < wide) if CLIPPED else real
    place, right, low, upper_left, upper_right, lower_left, lower_right = find_neighbours(
        motions + 9 * image, x, y, inside, tall, wide, width, PERSPECTIVE
    )
    plane = images + own.to(tl.int64) * CHANNELS * height * width
    target = moved + image.to(tl.int64) * CHANNELS * rows * columns + pixel
    for _ in tl.static_range(CHANNELS):
        value = interpolate(plane, width, place, right, low, upper_left, upper_right, lower_left, lower_right)
        tl.store(target, value, mask=real)
        plane += height * width
        target += rows * columns


def move_images(
    images: Tensor, motions: Tensor, places: Tensor, x: Tensor, y: Tensor, *, clipped: bool, perspective: bool
) -> Tensor:
    """Return moved images (N, C, H, W) of images, float32 (B, C, …).

    `motions`, float32 (N, 9), map a pixel's centred position to its source's column and row; the last three are the
    divisor, which only counts with `perspective`. `places`, int32 (N, 3), are each one's image, its height and its width.
    `x` (N or 1, W) and `y` (N or 1, H), float32, are the positions of pixels. With `clipped`, these are the pixels of whole
    images, and those that lie outside of an image's own size are 0.
    """
    _, channels, height, width = images.shape
    rows, columns, count = y.shape[1], x.shape[1], len(motions)
    moved = torch.empty(count, channels, rows, columns, dtype=torch.float32, device=images.device)
    if not moved.numel():
        return moved
    with torch.cuda.device_of(images):  # type: ignore[no-untyped-call]
        _move[count, triton.cdiv(rows * columns, PIXELS)](
            images.contiguous(),
            motions.contiguous(),
            places.contiguous(),
            x.contiguous(),
            y.contiguous(),
            moved,
            height,
            width,
            rows,
            columns,
            X_STRIDE=int(len(x) > 1),
            Y_STRIDE=int(len(y) > 1),
            CLIPPED=clipped,
            PERSPECTIVE=perspective,
            CHANNELS=channels,
            PIXELS=PIXELS,
            num_warps=WARPS,
            enable_fp_fusion=False,
        )
    return moved
