"""Single pixels drawn with replacement: what the draws of an image say about each of its pixels, then all its pixels."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from brinell.kernels.cuda.hashed_draws import draw_below, draw_bits

DRAWS, PIXELS = 256, 1024  # of a program


@triton.jit(do_not_specialize=["count", "area"])  # type: ignore[untyped-decorator]
def _mark(keys, marks, count, area, COUNTED: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # Triton reads annotations itself
    """Count the draws of each pixel, or keep the last one (0: none)."""
    image = tl.program_id(1)
    draw = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mark = marks + image.to(tl.int64) * area + draw_below(tl.load(keys + image), draw, area, 0)
    if COUNTED:
        tl.atomic_add(mark, 1, mask=draw < count, sem="relaxed")
    else:
        tl.atomic_max(mark, draw + 1, mask=draw < count, sem="relaxed")


@triton.jit(do_not_specialize=["area", "amount"])  # type: ignore[untyped-decorator]
def _paint(  # type: ignore[no-untyped-def]
    images, made, keys, marks, area, amount, LIGHTEN: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr
):
    """Add an amount per draw to each pixel, or give drawn pixels the random colour of their last draw."""
    image = tl.program_id(1)
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mark = tl.load(marks + image.to(tl.int64) * area + pixel, mask=pixel < area, other=0)
    if not LIGHTEN:
        bits = draw_bits(tl.load(keys + image), mark - 1, 1)
    for channel in tl.static_range(CHANNELS):
        plane = (image.to(tl.int64) * CHANNELS + channel) * area
        value = tl.load(images + plane + pixel, mask=pixel < area, other=0)
        if LIGHTEN:
            value = tl.minimum(value.to(tl.int32) + mark * amount, 255).to(tl.uint8)
        else:
            value = tl.where(mark > 0, (bits >> (8 * channel)).to(tl.uint8), value)
        tl.store(made + plane + pixel, value, mask=pixel < area)


def _change_dots(images: Tensor, keys: Tensor, count: int, amount: int, *, lighten: bool) -> Tensor:
    batch, channels, height, width = images.shape
    area, images = height * width, images.contiguous()
    made = torch.empty_like(images)
    marks = torch.zeros(batch, area, dtype=torch.int32, device=images.device)
    with torch.cuda.device_of(images):  # type: ignore[no-untyped-call]
        _mark[triton.cdiv(count, DRAWS), batch](keys, marks, count, area, COUNTED=lighten, BLOCK=DRAWS)
        _paint[triton.cdiv(area, PIXELS), batch](
            images, made, keys, marks, area, amount, LIGHTEN=lighten, CHANNELS=channels, BLOCK=PIXELS
        )
    return made


def redraw(images: Tensor, keys: Tensor, count: int) -> Tensor:
    """Give `count` drawn pixels of each image (B, C, H, W) random colours; a pixel drawn twice has its last colour."""
    return _change_dots(images, keys, count, 0, lighten=False)


def lighten(images: Tensor, keys: Tensor, count: int, amount: int) -> Tensor:
    """Add an amount to the values of `count` drawn pixels of each image, as often as a pixel is drawn, up to 255."""
    return _change_dots(images, keys, count, amount, lighten=True)
