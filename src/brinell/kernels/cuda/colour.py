"""Operators on single pixels, to the bits of `perturb.colour`, in one launch each."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

PIXELS = 1024  # of a program
VALUES = 2048

# sizes are specialised: several bytes are read and stored at once where they are multiples of 16


@triton.jit  # type: ignore[untyped-decorator]
def _fade_grey(  # type: ignore[no-untyped-def]  # Triton reads annotations itself
    images, made, per_value, per_spread, faded, red_falls, green_falls, blue_falls, size, PIXELS: tl.constexpr
):
    tiles = tl.cdiv(size, PIXELS)
    pixel = tl.program_id(0) % tiles * PIXELS + tl.arange(0, PIXELS)
    inside = pixel < size
    pixel += (tl.program_id(0) // tiles).to(tl.int64) * size * 3
    red = tl.load(images + pixel, mask=inside, other=0).to(tl.int32)
    green = tl.load(images + pixel + size, mask=inside, other=0).to(tl.int32)
    blue = tl.load(images + pixel + 2 * size, mask=inside, other=0).to(tl.int32)
    value = tl.maximum(tl.maximum(red, green), blue)
    spread = value - tl.minimum(tl.minimum(red, green), blue)
    saturation = (tl.load(per_value + value) * spread + 2048) >> 12
    sector = tl.where(value == green, blue - red + 2 * spread, red - green + 4 * spread)
    sector = tl.where(value == red, green - blue, sector)
    hue = ((tl.load(per_spread + spread) * sector + 2048) >> 12) + 180
    amount, bright = tl.load(faded + saturation), value.to(tl.float32) * (1 / 255)
    red = (1 - tl.load(red_falls + hue) * amount) * bright * 255
    green = (1 - tl.load(green_falls + hue) * amount) * bright * 255
    blue = (1 - tl.load(blue_falls + hue) * amount) * bright * 255
    tl.store(made + pixel, red.to(tl.uint8), mask=inside)
    tl.store(made + pixel + size, green.to(tl.uint8), mask=inside)
    tl.store(made + pixel + 2 * size, blue.to(tl.uint8), mask=inside)


def fade_grey(images: Tensor, tables: tuple[Tensor, ...]) -> Tensor:
    """Fade images (B, 3, H, W), uint8, to grey by the tables of `_HsvTables`, in their order."""
    images, made, size = images.contiguous(), images.new_empty(images.shape), images.shape[2] * images.shape[3]
    with torch.cuda.device_of(images):  # type: ignore[no-untyped-call]
        programs = len(images) * triton.cdiv(size, PIXELS)
        _fade_grey[(programs,)](images, made, *tables, size, PIXELS=PIXELS, enable_fp_fusion=False)
    return made


@triton.jit(do_not_specialize=["last"])  # type: ignore[untyped-decorator]
def _look_up(images, made, tables, rows, last, size, VALUES: tl.constexpr):  # type: ignore[no-untyped-def]
    tiles = tl.cdiv(size, VALUES)
    image = tl.program_id(0) // tiles
    at = tl.program_id(0) % tiles * VALUES + tl.arange(0, VALUES)
    inside = at < size
    at += image.to(tl.int64) * size
    if rows is not None:
        tables += tl.maximum(tl.minimum(tl.load(rows + image), last), 0) * 256
    value = tl.load(images + at, mask=inside, other=0).to(tl.int32)
    tl.store(made + at, tl.load(tables + value), mask=inside)


def look_up(images: Tensor, tables: Tensor, rows: Tensor | None = None) -> Tensor:
    """Look up values of images (B, C, H, W), uint8, in tables (R, 256), uint8.

    Image b is looked up in table `rows[b]`, or in the nearest one that there is; without `rows`, all in the first.
    """
    images, made, size = images.contiguous(), images.new_empty(images.shape), images.shape[1:].numel()
    with torch.cuda.device_of(images):  # type: ignore[no-untyped-call]
        programs = len(images) * triton.cdiv(size, VALUES)
        last = len(tables) - 1
        _look_up[(programs,)](images, made, tables, rows, last, size, VALUES=VALUES, enable_fp_fusion=False)
    return made
