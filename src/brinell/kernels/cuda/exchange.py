"""Exchanged pixels in two launches, without replaying the exchanges.

The first lists for each pixel, in any order, all writes that go to it. The second asks for each pixel where its final
colour comes from: the last write to it copied what its source held at that moment, which is what the last write to the
source before that moment copied, and so on back to the original image. A write is named by its place in the order, so
that the greatest of a list before a moment is the last one whatever the order of the list: the result is that of one write
after the other.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from brinell.kernels.cuda.hashed_draws import draw_below, draw_bits

WRITES, PIXELS = 256, 128  # of a program
WARPS = 1  # of a program that follows pixels: the fewer, the sooner one whose pixels are done makes room


@triton.jit
def _around(key, pair, first, height, width):  # type: ignore[no-untyped-def]  # Triton reads annotations itself
    """Draw one of the up to eight neighbours of a pixel."""
    x, y = first % width, first // width
    left, top = tl.maximum(x - 1, 0), tl.maximum(y - 1, 0)
    across, down = tl.minimum(x + 2, width) - left, tl.minimum(y + 2, height) - top
    own = (y - top) * across + (x - left)
    chosen = draw_below(key, pair, across * down - 1, 1)
    chosen += ((chosen >= own) & (across * down > 1)).to(tl.int32)
    return (top + chosen // across) * width + left + chosen % across


@triton.jit
def _offset(bits16, position):  # type: ignore[no-untyped-def]
    edge = (position == 0).to(tl.int32)
    return ((bits16 * (3 - edge)) >> 16) - 1 + edge


@triton.jit  # type: ignore[untyped-decorator]
def _draw_pair(key, pair, height, width, PAIRS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Draw both pixels of an exchange, as the functions of these names in `perturb.exchange` do."""
    if PAIRS == "published neighbours":
        x, y = draw_below(key, pair, width - 1, 0), draw_below(key, pair, height - 1, 1)
        bits = draw_bits(key, pair, 2)
        dx, dy = _offset((bits & 0xFFFF).to(tl.int32), x), _offset((bits >> 16).to(tl.int32), y)
        first, second = y * width + x, (y + dy) * width + (x + dx)
    else:
        first = draw_below(key, pair, height * width, 0)
        if PAIRS == "neighbours":
            second = _around(key, pair, first, height, width)
        else:
            second = draw_below(key, pair, height * width, 1)
    return first, second


@triton.jit
def _list_write(heads, records, write, target, source, real):  # type: ignore[no-untyped-def]
    """Put a write in front of its target's list; its record is its source and the write behind it (0: none)."""
    behind = tl.atomic_xchg(heads + target, write, mask=real, sem="relaxed")
    tl.store(records + write - 1, (source.to(tl.int64) << 32) | behind.to(tl.int64), mask=real)


@triton.jit(do_not_specialize=["count", "height", "width"])  # type: ignore[untyped-decorator]
def _list_writes(  # type: ignore[no-untyped-def]
    keys, heads, records, count, height, width, PAIRS: tl.constexpr, SWAP: tl.constexpr, BLOCK: tl.constexpr
):
    image = tl.program_id(1)
    pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = pair < count
    first, second = _draw_pair(tl.load(keys + image), pair, height, width, PAIRS)
    heads += image.to(tl.int64) * height * width
    if SWAP:
        records += image.to(tl.int64) * count * 2
        _list_write(heads, records, 2 * pair + 1, first, second, real)
        _list_write(heads, records, 2 * pair + 2, second, first, real)
    else:
        records += image.to(tl.int64) * count
        _list_write(heads, records, pair + 1, first, second, real)


@triton.jit(do_not_specialize=["writes", "area"])  # type: ignore[untyped-decorator]
def _follow_pixels(  # type: ignore[no-untyped-def]
    images, made, heads, records, writes, area, CHANNELS: tl.constexpr, SWAP: tl.constexpr, BLOCK: tl.constexpr
):
    image = tl.program_id(1).to(tl.int64)
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = pixel < area
    heads += image * area
    records += image * writes
    write = tl.load(heads + pixel, mask=real, other=0)
    origin, source = pixel, tl.full((BLOCK,), 0, tl.int32)
    # the first write that comes too late, and the last one found that doesn't (0: none)
    late, last = tl.full((BLOCK,), 0x7FFFFFFF, tl.int32), tl.full((BLOCK,), 0, tl.int32)
    while tl.max(write, 0) > 0:
        record = tl.load(records + write - 1, mask=write > 0, other=0)
        better = (write > last) & (write < late)
        source = tl.where(better, (record >> 32).to(tl.int32), source)
        last = tl.where(better, write, last)
        write = (record & 0xFFFFFFFF).to(tl.int32)
        back = (write == 0) & (last > 0)  # at the end of the list: go to the source and its list
        origin = tl.where(back, source, origin)
        # both writes of a swap, 2k + 1 and 2k + 2, happen at once
        late = tl.where(back, last - (last - 1) % 2 if SWAP else last, late)
        write = tl.where(back, tl.load(heads + source, mask=back, other=0), write)
        last = tl.where(back, 0, last)
    for channel in tl.static_range(CHANNELS):
        plane = (image * CHANNELS + channel) * area
        colour = tl.load(images + plane + origin, mask=real, other=0)
        tl.store(made + plane + pixel, colour, mask=real)


def exchange(images: Tensor, keys: Tensor, count: int, pairs: str, *, swap: bool) -> Tensor:
    """Copy colours from the second to the first pixel of `count` drawn pairs, or swap them, one pair after the other.

    `pairs` says how they are drawn. Images are (B, C, H, W), keys those of their draws.
    """
    batch, channels, height, width = images.shape
    area, writes = height * width, 2 * count if swap else count
    images, made = images.contiguous(), torch.empty(images.shape, dtype=images.dtype, device=images.device)
    heads = torch.zeros(batch, area, dtype=torch.int32, device=images.device)
    records = torch.empty(batch, writes, dtype=torch.int64, device=images.device)
    with torch.cuda.device_of(images):  # type: ignore[no-untyped-call]
        _list_writes[triton.cdiv(count, WRITES), batch](
            keys, heads, records, count, height, width, PAIRS=pairs, SWAP=swap, BLOCK=WRITES
        )
        _follow_pixels[triton.cdiv(area, PIXELS), batch](
            images, made, heads, records, writes, area, CHANNELS=channels, SWAP=swap, BLOCK=PIXELS, num_warps=WARPS
        )
    return made
