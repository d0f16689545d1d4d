"""Triton kernels that count the colours of posterised images.

If an image uses at most one of every eight values of a channel, the upper five bits of a value tell which one it is, and a
table of all colours is small. Many threads may mark the same entry, but all of them write the same.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

PIXELS = 1024  # of a program that marks
ENTRIES = 4096  # of a step of a program that counts


@triton.jit
def _mark(marks, at, inside):  # type: ignore[no-untyped-def]
    unmarked = tl.load(marks + at, mask=inside, other=1) == 0  # so that few threads write; it may be out of date
    tl.store(marks + at, tl.full(at.shape, 1, tl.uint8), mask=inside & unmarked)


@triton.jit(do_not_specialize=["area"])  # type: ignore[untyped-decorator]
def _mark_used(  # type: ignore[no-untyped-def]
    images,
    marks,
    area,
    CHANNELS: tl.constexpr,
    COLOURS: tl.constexpr,
    PIXELS: tl.constexpr,
):
    image = tl.program_id(0).to(tl.int64)
    images += image * area * CHANNELS
    marks += image * (COLOURS + 256 * CHANNELS)
    pixel = tl.program_id(1) * PIXELS + tl.arange(0, PIXELS)
    inside = pixel < area
    colour = tl.zeros((PIXELS,), tl.int32)
    for channel in tl.static_range(CHANNELS):
        value = tl.load(images + channel * area + pixel, mask=inside, other=0).to(tl.int32)
        colour = colour * 32 + (value >> 3)
        _mark(marks, COLOURS + 256 * channel + value, inside)
    _mark(marks, colour, inside)


@triton.jit  # type: ignore[untyped-decorator]
def _count_marks(  # type: ignore[no-untyped-def]
    marks,
    counts,
    CHANNELS: tl.constexpr,
    COLOURS: tl.constexpr,
    ENTRIES: tl.constexpr,
):
    image = tl.program_id(0)
    marks += image.to(tl.int64) * (COLOURS + 256 * CHANNELS)
    found = tl.zeros((ENTRIES,), tl.int32)
    for start in range(0, COLOURS, ENTRIES):
        found += tl.load(marks + start + tl.arange(0, ENTRIES)).to(tl.int32)
    count = tl.sum(found)
    group, value = tl.arange(0, 32)[:, None], tl.arange(0, 8)[None, :]
    for channel in tl.static_range(CHANNELS):
        used = tl.load(marks + COLOURS + 256 * channel + group * 8 + value).to(tl.int32)
        count = tl.where(tl.max(tl.sum(used, 1), 0) > 1, -1, count)
    tl.store(counts + image, count.to(tl.int64))


def count_posterised(images: Tensor) -> Tensor:
    """Return the number of colours of each image (N, C, H, W), uint8, as int64; -1 for those that are not posterised."""
    images = images.contiguous()
    count, channels, height, width = images.shape
    colours = 32**channels
    marks = torch.zeros(count, colours + 256 * channels, dtype=torch.uint8, device=images.device)
    counts = torch.empty(count, dtype=torch.int64, device=images.device)
    sizes = {"CHANNELS": channels, "COLOURS": colours}
    with torch.cuda.device_of(images):  # type: ignore[no-untyped-call]
        programs = count, triton.cdiv(height * width, PIXELS)
        _mark_used[programs](images, marks, height * width, **sizes, PIXELS=PIXELS)
        _count_marks[(count,)](marks, counts, **sizes, ENTRIES=min(colours, ENTRIES))
    return counts
