"""The decorator of kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from numba import njit

F = TypeVar("F", bound=Callable[..., object])


def kernel(function: F) -> F:
    """Compile a function when it is first called with arguments of some types; it runs without Python's lock."""
    compiled: F = njit(function, nogil=True, cache=True, error_model="numpy")
    return compiled
