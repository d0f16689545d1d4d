"""A Triton kernel that normalises images in the precision and memory format that a network takes.

Tensor code writes float32 twice and converts it, which moves ten times as many bytes.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

RUN = 16  # pixels of which planes are multiples where they can be, so that threads load and store many bytes at once
TILE = 2048  # values of a program


@triton.jit(do_not_specialize=["runs"])  # type: ignore[untyped-decorator]
def _normalise(  # type: ignore[no-untyped-def]  # Triton reads annotations itself
    inputs,
    images,
    scale,
    shift,
    runs,
    SCALE_STRIDE: tl.constexpr,
    SHIFT_STRIDE: tl.constexpr,
    CHANNELS: tl.constexpr,
    BGR: tl.constexpr,
    LAST: tl.constexpr,
    RUN: tl.constexpr,
    TILE: tl.constexpr,
):
    area = runs * RUN  # in this form the compiler knows what it is a multiple of
    at = tl.program_id(1) * TILE + tl.arange(0, TILE)
    if LAST:  # a program writes values of all channels, in the order of memory
        channel, pixel, size = at % CHANNELS, at // CHANNELS, area * CHANNELS
        start = tl.program_id(0).to(tl.int64) * size
        target = at
    else:  # of one
        channel, pixel, size = tl.program_id(0) % CHANNELS, at, area
        start = (tl.program_id(0) // CHANNELS).to(tl.int64) * (area * CHANNELS)
        target = channel * area + at
    inside = at < size
    source = CHANNELS - 1 - channel if BGR else channel
    value = tl.load(inputs + start + (source * area + pixel), mask=inside, other=0).to(tl.float32)
    value = value * tl.load(scale + source * SCALE_STRIDE) + tl.load(shift + source * SHIFT_STRIDE)
    tl.store(images + start + target, value.to(images.dtype.element_ty), mask=inside)


def normalise(inputs: Tensor, images: Tensor, scale: Tensor, shift: Tensor, *, bgr: bool) -> None:
    """Write inputs (N, C, H, W), uint8, times `scale` plus `shift`, both float32 (C, 1, 1) or (1, 1, 1), to `images`.

    These may be of any precision, and lie in memory by channels or with channels last. `bgr`: red and blue are swapped.
    """
    inputs = inputs.contiguous()
    count, channels, height, width = inputs.shape
    last = not images.is_contiguous()
    rows, size = (count, channels * height * width) if last else (count * channels, height * width)
    run = RUN if height * width % RUN == 0 else 1
    with torch.cuda.device_of(inputs):  # type: ignore[no-untyped-call]
        _normalise[rows, triton.cdiv(size, TILE)](
            inputs,
            images,
            scale,
            shift,
            height * width // run,
            SCALE_STRIDE=scale.expand(channels, 1, 1).stride(0),
            SHIFT_STRIDE=shift.expand(channels, 1, 1).stride(0),
            CHANNELS=channels,
            BGR=bgr,
            LAST=last,
            RUN=run,
            TILE=TILE,
            enable_fp_fusion=False,
        )
