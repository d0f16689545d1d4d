"""Kernels of `perturb.noise`: fields of random numbers from random bits."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024  # draws of a program


@triton.jit(do_not_specialize=["size"])  # type: ignore[untyped-decorator]
def _signed_uniform(bits, made, size, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # Triton reads annotations itself
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    drawn = tl.load(bits + at, mask=at < size, other=0)
    tl.store(made + at, (drawn >> 8).to(tl.float32) * (1.0 / 8388608), mask=at < size)  # exact: 24 bits times 2**-23


def signed_uniform(bits: Tensor) -> Tensor:
    """Return the top 24 of 32 bits, int32, as numbers in [-1, 1), float32."""
    made = torch.empty_like(bits, dtype=torch.float32)
    with torch.cuda.device_of(bits):  # type: ignore[no-untyped-call]
        _signed_uniform[(triton.cdiv(bits.numel(), BLOCK),)](bits, made, bits.numel(), BLOCK=BLOCK)
    return made


@triton.jit(do_not_specialize=["draws", "count"])  # type: ignore[untyped-decorator]
def _look_up(bits, table, made, draws, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    image = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    drawn = tl.load(bits + image * draws + at, mask=at < draws, other=0)
    own = made + image * count + at
    tl.store(own, tl.load(table + (drawn & 0xFFFF)), mask=at < draws)
    tl.store(own + draws, tl.load(table + ((drawn >> 16) & 0xFFFF)), mask=at + draws < count)


def look_up(bits: Tensor, table: Tensor, count: int) -> Tensor:
    """Return entries of a table, float32 (65536,), that halves of bits select, float32 (B, count).

    The lower halves of all bits, int32 (B, (count + 1) // 2), come before the upper ones.
    """
    made = torch.empty(len(bits), count, dtype=torch.float32, device=bits.device)
    with torch.cuda.device_of(bits):  # type: ignore[no-untyped-call]
        blocks = (len(bits), triton.cdiv(bits.shape[1], BLOCK))
        _look_up[blocks](bits, table, made, bits.shape[1], count, BLOCK=BLOCK)
    return made
