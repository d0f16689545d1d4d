"""What Ctrl-C costs: a command that stores its results says whether rerunning it resumes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from brinell.interrupts import interrupted


class Interrupted(Exception):
    """Ctrl-C ended a command. The message says what rerunning it does."""


@contextmanager
def resuming(stored: Callable[[], bool]) -> Iterator[None]:
    """Say on Ctrl-C whether rerunning resumes: only if something is `stored`."""
    try:
        yield
    except BaseException as error:
        if not (isinstance(error, KeyboardInterrupt) or interrupted()):  # libraries raise errors of their own
            raise
        resumes = "Interrupted; rerun to resume."
        raise Interrupted(
            resumes if stored() else "Interrupted before anything was stored; rerun to start again."
        ) from None
