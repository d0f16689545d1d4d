"""The draws of `brinell.draws` for kernels: a draw is made where it is used and never stored.

Kernels call these functions. `key` is an image's entry of `Draws.keys`, uint64. A purpose is given by its `first` counter.
"""

from __future__ import annotations

from numpy import uint32, uint64

from brinell.kernels.cpu.compiled import kernel

# as in brinell.draws, which is above the kernels
_GOLDEN = uint32(0x9E3779B1)
_STRIDE = 0x632BE5AB
_FACTOR_1, _FACTOR_2, _FACTOR_3 = uint32(0xED5AD4BB), uint32(0xAC4C1B51), uint32(0x31848BAB)


def first_of(purpose: int) -> uint32:
    """Return the first counter of a purpose; kernels take it as a constant of their module."""
    return uint32(purpose * _STRIDE & 0xFFFFFFFF)


@kernel
def draw_bits(key, element, first):  # type: ignore[no-untyped-def]  # Numba infers types
    """Return 32 random bits, uint32: one of `Draws.bits`."""
    x = uint32(uint32(uint32(element) * _GOLDEN) + first)
    x = uint32(x + uint32(key))
    x = uint32(x ^ (x >> uint32(17)))
    x = uint32(uint32(x * _FACTOR_1) + uint32(key >> uint64(32)))
    x = uint32(x ^ (x >> uint32(11)))
    x = uint32(x * _FACTOR_2)
    x = uint32(x ^ (x >> uint32(15)))
    x = uint32(x * _FACTOR_3)
    return uint32(x ^ (x >> uint32(14)))


@kernel
def draw_below(key, element, bound, first):  # type: ignore[no-untyped-def]
    """Return a uniform integer in [0, bound), int64: one of `Draws.below`."""
    return int((uint64(draw_bits(key, element, first)) * uint64(bound)) >> uint64(32))
