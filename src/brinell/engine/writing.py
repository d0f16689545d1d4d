"""Writes what was measured in the background, while the next unit is measured."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType


class Writer:
    """Does one piece of writing at a time, and lets no second one wait: whoever brings it waits instead.

    Each is done whole, also if measuring stops with an error. An error of writing is raised where the next piece is
    brought, or at the end.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "rows")
        self._last: Future[None] | None = None

    def __call__(self, write: Callable[[], None]) -> None:
        """Start a piece of writing once the one before is done."""
        self._finish()
        self._last = self._thread.submit(write)

    def _finish(self) -> None:
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._thread.shutdown()
        if error is None:
            self._finish()
