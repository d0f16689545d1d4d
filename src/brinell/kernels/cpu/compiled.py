"""The decorator of kernels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from numba import njit
from numba.core.caching import FunctionCache


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function when it is first called with arguments of some types; it runs without Python's lock.

    The machine code is kept on disk, next to the source or in the user's cache. Numba notices changes of a function's own
    file alone, but kernels call those of other files: a digest of all is part of the name under which code is kept.
    """
    function.__qualname__ += f"-{_digest()}"
    compiled = njit(function, nogil=True, error_model="numpy")
    with suppress(RuntimeError):  # neither folder can be written to: compile in every process
        compiled._cache = _Cache(function)  # type: ignore[no-untyped-call]  # Numba has no types
    return compiled


class _Cache(FunctionCache):
    """Machine code on disk. Code that can't be read is compiled again, and code that can't be written is not kept."""

    def load_overload(self, *given: Any) -> Any:
        try:
            return super().load_overload(*given)  # type: ignore[no-untyped-call]
        except Exception:  # damaged, or another user's
            return None

    def save_overload(self, *given: Any) -> None:
        with suppress(Exception):  # a full disk, for example
            super().save_overload(*given)  # type: ignore[no-untyped-call]


@cache
def _digest() -> str:
    """Return a digest of all kernels for CPUs."""
    digest = hashlib.blake2b(digest_size=6)
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()
