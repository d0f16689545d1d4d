"""Fields of random numbers from random bits."""

from __future__ import annotations

import numpy as np
from numpy import float32, int32
from torch import Tensor, from_numpy

from brinell.kernels.cpu.compiled import kernel


@kernel
def _signed_uniform(bits, made):  # type: ignore[no-untyped-def]  # Numba infers types
    for at in range(len(bits)):
        made[at] = float32(int32(bits[at] >> int32(8))) * float32(1.0 / 8388608)  # exact: 24 bits times 2**-23


def signed_uniform(bits: Tensor) -> Tensor:
    """Return the top 24 of 32 bits, int32, as numbers in [-1, 1), float32."""
    made = np.empty(bits.numel(), np.float32)
    _signed_uniform(bits.contiguous().flatten().numpy(), made)
    return from_numpy(made).view(bits.shape)


@kernel
def _look_up(bits, table, made):  # type: ignore[no-untyped-def]
    draws = bits.shape[1]
    for image in range(len(bits)):
        own = bits[image]
        first, second = made[image, :draws], made[image, draws:]
        for at in range(len(first)):
            first[at] = table[own[at] & 0xFFFF]
        for at in range(len(second)):
            second[at] = table[(own[at] >> 16) & 0xFFFF]


def look_up(bits: Tensor, table: Tensor, count: int) -> Tensor:
    """Return entries of a table, float32 (65536,), that halves of bits select, float32 (B, count).

    The lower halves of all bits, int32 (B, (count + 1) // 2), come before the upper ones.
    """
    made = np.empty((len(bits), count), np.float32)
    _look_up(bits.contiguous().numpy(), table.numpy(), made)
    return from_numpy(made)
