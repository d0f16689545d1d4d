"""Ctrl-C and SIGTERM: both end a command with a KeyboardInterrupt, and stop paid queries at once.

Libraries may swallow a KeyboardInterrupt or turn it into an error of their own, so it is also remembered that one came.
"""

from __future__ import annotations

import signal
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_watching: weakref.WeakSet[threading.Event] = weakref.WeakSet()
_state = {"came": False}


def set_on_interrupt(event: threading.Event) -> None:
    """Have an event set as soon as a signal arrives, while the main thread may be waiting for others."""
    _watching.add(event)


def interrupted() -> bool:
    """Whether a signal has arrived since `stoppable` was entered."""
    return _state["came"]


def raise_if_interrupted() -> None:
    """Raise the KeyboardInterrupt that a library has swallowed."""
    if interrupted():
        raise KeyboardInterrupt


@contextmanager
def stoppable() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM stop what runs in this context; signals that are ignored, as under nohup, still are."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        _state["came"] = True
        for event in list(_watching):
            event.set()
        raise KeyboardInterrupt

    _state["came"] = False
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
