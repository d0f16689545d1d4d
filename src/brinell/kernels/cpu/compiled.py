"""The decorator of kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function when it is first called with arguments of some types; it runs without Python's lock."""
    return njit(function, nogil=True, cache=True, error_model="numpy")
