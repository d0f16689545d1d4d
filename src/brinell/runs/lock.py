"""Who may use a run's folder: processes of one run share it, and another run may only start there while it is alone.

The operating system releases the lock when a process ends, however it ends, so a crash leaves nothing to clean up. At a
URL, and where the system has no such locks, nobody is known to be alone: what another run has begun there stays.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from brinell.errors import RunError
from brinell.runs.files import is_local
from brinell.runs.store import Store

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

A = TypeVar("A")

FILE = ".lock"
PATIENCE = 20.0  # seconds to wait for a process that is just starting


@contextmanager
def share_folder(store: Store, start: Callable[[bool], A]) -> Iterator[A]:
    """Hold a folder's lock, together with other processes of the same run, and return what `start` returns.

    `start` is told whether this process is alone, and is called again once the folder is shared: another process may have
    come in between.
    """
    descriptor = _open(store)
    try:
        if descriptor is not None:
            if _lock(descriptor, fcntl.LOCK_EX):
                start(True)
            _wait_for_share(descriptor, store)
        yield start(False)
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _wait_for_share(descriptor: int, store: Store) -> None:
    deadline = time.monotonic() + PATIENCE
    while not _lock(descriptor, fcntl.LOCK_SH):
        if time.monotonic() > deadline:
            raise RunError(f"another process keeps {store.url} locked; wait for it, or choose another folder with --out")
        time.sleep(0.05)


def _lock(descriptor: int, kind: int) -> bool:
    """Take or change a lock, and return whether that was possible."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _open(store: Store) -> int | None:
    """Return the opened lock file, or None where there are no locks."""
    if fcntl is None or not is_local(store.fs):
        return None
    path = Path(store.path(FILE))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise RunError(f"can't write {path}: {error.strerror or error}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    except OSError:  # a file system without locks
        os.close(descriptor)
        return None
    return descriptor
