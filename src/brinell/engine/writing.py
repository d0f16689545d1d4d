"""Writes what was measured in the background, while the next unit is measured."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType


class Writer:
    """Runs one write at a time, without a queue: submitting the next write blocks until the current one is done.

    Every write runs to completion, even if measuring fails. An error in a write is raised when the next one is submitted,
    or on exit.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "rows")
        self._last: Future[None] | None = None

    def __call__(self, write: Callable[[], None]) -> None:
        """Start a write once the one before is done; if that is interrupted, what was measured is still written."""
        try:
            self._finish()
        except KeyboardInterrupt:
            self._last = self._thread.submit(write)
            raise
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
