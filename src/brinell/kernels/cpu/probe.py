"""A kernel that shows whether Numba compiles and runs on this processor."""

from __future__ import annotations

from torch import Tensor

from brinell.kernels.cpu.compiled import kernel


@kernel
def _add_one(count):  # type: ignore[no-untyped-def]  # Numba infers types
    count[0] += 1


def add_one(count: Tensor) -> None:
    """Add one to a number, int32 (1,)."""
    _add_one(count.numpy())
