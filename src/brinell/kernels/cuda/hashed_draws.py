"""The draws of `brinell.draws` for kernels: a draw is made where it is used and never stored.

Kernels call these functions. `key` is an image's entry of `Draws.keys`, int64.
"""

from __future__ import annotations

import triton
import triton.language as tl

# as in brinell.draws, which is above the kernels
_GOLDEN = tl.constexpr(0x9E3779B1)
_STRIDE = tl.constexpr(0x632BE5AB)
_FACTOR_1 = tl.constexpr(0xED5AD4BB)
_FACTOR_2 = tl.constexpr(0xAC4C1B51)
_FACTOR_3 = tl.constexpr(0x31848BAB)


@triton.jit  # type: ignore[untyped-decorator]
def draw_bits(key, element, PURPOSE: tl.constexpr):  # type: ignore[no-untyped-def]  # Triton reads annotations itself
    """Return 32 random bits per element, uint32: `Draws.bits`."""
    return draw_bits_from(key, element, (PURPOSE * _STRIDE) & 0xFFFFFFFF)


@triton.jit
def draw_bits_from(key, element, first):  # type: ignore[no-untyped-def]
    """Return the same for the purpose whose `first` counter is given, uint32."""
    x = tl.cast(element, tl.uint32) * _GOLDEN + first + key.to(tl.uint32)
    x = (x ^ (x >> 17)) * _FACTOR_1 + (key >> 32).to(tl.uint32)
    x = (x ^ (x >> 11)) * _FACTOR_2
    x = (x ^ (x >> 15)) * _FACTOR_3
    return x ^ (x >> 14)


@triton.jit  # type: ignore[untyped-decorator]
def draw_below(key, element, bound, PURPOSE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return uniform integers in [0, bound), int32: `Draws.below`."""
    return tl.umulhi(draw_bits(key, element, PURPOSE), tl.cast(bound, tl.uint32)).to(tl.int32)
