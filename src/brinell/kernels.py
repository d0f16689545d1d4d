"""Resizing along one side as a kernel of Triton's, which comes with torch for CUDA: every sum is made in one go.

A product with a matrix of weights multiplies by zeros for the most part, and keeps sums of eight bytes; this reads and
writes bytes alone. See `resampling` for what is computed; tests have the kernel interpreted on a CPU.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

LONG, SHORT = 64, 16  # pixels of a block: along rows, where bytes lie side by side, and down


# compiled once, and not anew for sizes that are 1 or multiples of 16
@triton.jit(do_not_specialize=["planes", "taps", "length", "others", "count", "plane_size", "row_size"])  # type: ignore[untyped-decorator]
def _summed(  # type: ignore[no-untyped-def]  # Triton reads annotations itself
    source,
    target,
    first,
    whole,
    low,
    begin,
    to,
    planes,
    taps,
    length,
    others,
    count,
    plane_size,
    row_size,
    ACROSS: tl.constexpr,  # noqa: N803
    BITS: tl.constexpr,  # noqa: N803
    ALONG: tl.constexpr,  # noqa: N803
    BESIDE: tl.constexpr,  # noqa: N803
):
    place = tl.program_id(0)
    window, plane = place // planes, place % planes
    along = tl.program_id(1) * ALONG + tl.arange(0, ALONG)
    beside = tl.program_id(2) * BESIDE + tl.arange(0, BESIDE)
    there, inside = along < count, beside < others
    pixel = tl.load(begin + window).to(tl.int32) + along
    start = tl.load(first + pixel, mask=there, other=0) - tl.load(low + window).to(tl.int32)
    plane_of = source + place.to(tl.int64) * length * others
    total = tl.full((ALONG, BESIDE), 1 << (BITS - 1), tl.int32)
    for tap in range(taps):
        weight = tl.load(whole + pixel * taps + tap, mask=there, other=0)
        at = start + tap
        where = beside[None, :] * length + at[:, None] if ACROSS else at[:, None] * others + beside[None, :]
        held = (there & (at < length))[:, None] & inside[None, :]
        total += weight[:, None] * tl.load(plane_of + where, mask=held, other=0).to(tl.int32)
    value = tl.minimum(tl.maximum(total >> BITS, 0), 255).to(tl.uint8)
    where = beside[None, :] * row_size + along[:, None] if ACROSS else along[:, None] * row_size + beside[None, :]
    corner = target + tl.load(to + window) + plane.to(tl.int64) * plane_size
    tl.store(corner + where, value, mask=there[:, None] & inside[None, :])


def summed(
    source: Tensor,
    target: Tensor,
    first: Tensor,
    whole: Tensor,
    low: Tensor,
    begin: Tensor,
    to: Tensor,
    count: int,
    *,
    across: bool,
    bits: int,
) -> None:
    """Make `count` pixels of every row (or column) of windows (T, C, h, w), uint8, from weighted sums along it.

    Target pixel x takes `whole[x]`, int32 (target, taps), of the source's pixels from `first[x]` on. Window t begins at the
    source's pixel `low[t]`, and its first made pixel is `begin[t]`. They go to `target`, (N, C, H, W), from its element
    `to[t]` on. These three are int64 (T,), and all lie on the device.
    """
    windows, planes, height, width = source.shape
    length, others = (width, height) if across else (height, width)
    along, beside = (LONG, SHORT) if across else (SHORT, LONG)
    blocks = (windows * planes, triton.cdiv(count, along), triton.cdiv(others, beside))
    with torch.cuda.device_of(source):  # type: ignore[no-untyped-call]
        _summed[blocks](
            source,
            target,
            first,
            whole,
            low,
            begin,
            to,
            planes,
            whole.shape[1],
            length,
            others,
            count,
            target.shape[2] * target.shape[3],
            target.shape[3],
            ACROSS=across,
            BITS=bits,
            ALONG=along,
            BESIDE=beside,
        )
