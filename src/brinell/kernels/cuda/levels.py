"""Kernels of `perturb.levels`: blends of images with fields, and the way to whole grey levels."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024  # values of a program


@triton.jit(do_not_specialize=["size", "plane", "image_step"])  # type: ignore[untyped-decorator]
def _blend(  # type: ignore[no-untyped-def]  # Triton reads annotations itself
    images, factors, field, size, plane, image_step, FIELD: tl.constexpr, SHARED: tl.constexpr, BLOCK: tl.constexpr
):
    image = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    own = images + image.to(tl.int64) * size + at
    keep = tl.load(factors + image)
    weight = tl.load(factors + tl.num_programs(0) + image)
    value = tl.load(own, mask=inside, other=0.0) * keep
    if FIELD:
        place = at % plane if SHARED else at
        value += tl.load(field + image.to(tl.int64) * image_step + place, mask=inside, other=0.0) * weight
    else:
        value += weight
    tl.store(own, value, mask=inside)


def blend(images: Tensor, factors: Tensor, field: Tensor | None) -> None:
    """Multiply float32 images (B, C, H, W) in place by one factor per image, and add a field times another.

    `factors` is float32 (2, B). The field is float32 (B, C or 1, H, W) or (C or 1, H, W), by default 1 everywhere.
    """
    count, channels, height, width = images.shape
    size = channels * height * width
    given = images if field is None else field.contiguous()
    shared = given.shape[-3] < channels
    step = 0 if given.dim() == 3 else height * width if shared else size
    with torch.cuda.device_of(images):  # type: ignore[no-untyped-call]
        _blend[count, triton.cdiv(size, BLOCK)](
            images,
            factors,
            given,
            size,
            height * width,
            step,
            FIELD=field is not None,
            SHARED=shared,
            BLOCK=BLOCK,
            enable_fp_fusion=False,
        )


@triton.jit(do_not_specialize=["size"])  # type: ignore[untyped-decorator]
def _to_whole(levels, made, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(levels + at, mask=at < size, other=0.0)
    value = tl.minimum(tl.maximum(value, 0.0), 255.0)
    # a sum from 2**23 on has no fraction: it is rounded half to even
    value = (value + 12582912.0) - 12582912.0
    tl.store(made + at, value.to(tl.int32).to(tl.uint8), mask=at < size)


def to_whole(levels: Tensor) -> Tensor:
    """Return contiguous float32 grey levels clipped to 0 to 255 and rounded half to even, as uint8."""
    made = torch.empty_like(levels, dtype=torch.uint8)
    with torch.cuda.device_of(levels):  # type: ignore[no-untyped-call]
        _to_whole[(triton.cdiv(levels.numel(), BLOCK),)](levels, made, levels.numel(), BLOCK=BLOCK, enable_fp_fusion=False)
    return made
