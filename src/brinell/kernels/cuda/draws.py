"""Triton kernels that make the random numbers of `brinell.draws`."""

from __future__ import annotations

from typing import Literal

import torch
import triton
import triton.language as tl
from torch import Tensor

from brinell.kernels.cuda.hashed_draws import draw_bits_from

TILE = 1024  # numbers of a program
KEYS = 256
_UNIT = tl.constexpr(2.0**-32)

Kind = Literal["bits", "below", "uniform"]
DTYPES = {"bits": torch.int32, "below": torch.int64, "uniform": torch.float64}


@triton.jit(do_not_specialize=["first", "count", "bound", "low"])  # type: ignore[untyped-decorator]
def _draw(  # type: ignore[no-untyped-def]  # Triton reads annotations itself
    keys,
    drawn,
    first,
    count,
    bound,
    low,
    KIND: tl.constexpr,
    TILE: tl.constexpr,
):
    image = tl.program_id(0)
    element = tl.program_id(1) * TILE + tl.arange(0, TILE)
    bits = draw_bits_from(tl.load(keys + image), element, first.to(tl.uint32))
    if KIND == "bits":
        number = bits.to(tl.int32, bitcast=True)
    elif KIND == "below":
        number = ((bits.to(tl.int64) * bound.to(tl.int64)) >> 32) + low.to(tl.int64)
    else:
        number = (bits.to(tl.float64) + 0.5) * _UNIT
    tl.store(drawn + image.to(tl.int64) * count + element, number, mask=element < count)


def draw(keys: Tensor, first: int, count: int, kind: Kind, *, bound: int = 0, low: int = 0) -> Tensor:
    """Return `count` random numbers per key, int64 (B,): bits (int32), whole numbers (int64) or uniform ones (float64).

    The purpose is told by its `first` counter, as a signed number of 32 bits; whole numbers are in [low, low + bound).
    """
    drawn = torch.empty(len(keys), count, dtype=DTYPES[kind], device=keys.device)
    with torch.cuda.device_of(keys):  # type: ignore[no-untyped-call]
        _draw[len(keys), triton.cdiv(count, TILE)](
            keys.contiguous(),
            drawn,
            first,
            count,
            bound,
            low,
            KIND=kind,
            TILE=TILE,
        )
    return drawn


@triton.jit
def _mix(x):  # type: ignore[no-untyped-def]
    """The finaliser of splitmix64."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    return x ^ (x >> 31)


@triton.jit(do_not_specialize=["count", "key", "step"])  # type: ignore[untyped-decorator]
def _keys(  # type: ignore[no-untyped-def]
    images,
    steps,
    keys,
    count,
    key,
    step,
    STRIDE: tl.constexpr,
    SAME: tl.constexpr,
    TILE: tl.constexpr,
):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = at < count
    image = tl.load(images + at, mask=inside, other=0).to(tl.uint64)
    own = step.to(tl.uint64) if SAME else tl.load(steps + at, mask=inside, other=0).to(tl.uint64)
    mixed = _mix(_mix(image + (own + 1) * STRIDE) ^ key.to(tl.int64).to(tl.uint64))
    tl.store(keys + at, mixed.to(tl.int64, bitcast=True), mask=inside)


def keys_of(images: Tensor, key: int, step: int | Tensor, *, stride: int) -> Tensor:
    """Return a key per image id, int64 (B,), under a key, at one step or one per image; steps are `stride` apart."""
    images = images.contiguous()
    keys = torch.empty_like(images)
    steps, same = (step.contiguous(), 0) if isinstance(step, Tensor) else (images, step)
    with torch.cuda.device_of(images):  # type: ignore[no-untyped-call]
        _keys[(triton.cdiv(len(images), KEYS),)](
            images,
            steps,
            keys,
            len(images),
            key,
            same,
            STRIDE=stride,
            SAME=not isinstance(step, Tensor),
            TILE=KEYS,
        )
    return keys
