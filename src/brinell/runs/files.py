"""Bytes in a run's folder: on a disk they survive a power cut, at a URL every operation is tried again."""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, TypeVar

A = TypeVar("A")

HALF_WRITTEN = ".part"  # how the name of a file ends while it is written
ATTEMPTS = 4
PAUSE = 0.5  # seconds before the second attempt; twice as long before each further one
# another attempt would end in the same way
_FINAL = (
    FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError,
    ValueError, TypeError, NotImplementedError,
)  # fmt: skip
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)  # of file systems without hard links


def is_local(fs: Any) -> bool:
    """Whether a file system is this machine's."""
    return "file" in fs.protocol


def read_bytes(fs: Any, path: str) -> bytes:
    """Return the content of a file."""
    data: bytes = with_retries(fs, lambda: fs.cat_file(path))
    return data


def replace_bytes(fs: Any, path: str, data: bytes) -> None:
    """Write a file that appears whole or not at all: under another name first, then renamed."""
    part = f"{path}.{uuid.uuid4().hex}{HALF_WRITTEN}"
    try:
        if is_local(fs):
            try:
                _replace(Path(path), Path(part), data)
            except FileNotFoundError:  # another process, which has finished the run, has just removed the folder
                _replace(Path(path), Path(part), data)
            return
        with_retries(fs, lambda: fs.makedirs(posixpath.dirname(path), exist_ok=True))
        with_retries(fs, lambda: fs.pipe_file(part, data))
        _move(fs, part, path)
    except BaseException:
        with contextlib.suppress(Exception):
            fs.rm_file(part)
        raise


@contextlib.contextmanager
def replacing(fs: Any, path: str) -> Iterator[IO[bytes]]:
    """Yield a file to write piece by piece; it appears whole when the context ends, or not at all."""
    part = f"{path}.{uuid.uuid4().hex}{HALF_WRITTEN}"
    try:
        fs.makedirs(posixpath.dirname(path), exist_ok=True)
        with fs.open(part, "wb") as file:
            yield file
            if is_local(fs):
                file.flush()
                os.fsync(file.fileno())
        _move(fs, part, path)
    except BaseException:
        with contextlib.suppress(Exception):
            fs.rm_file(part)
        raise


def _move(fs: Any, part: str, path: str) -> None:
    """Give a file its name. Where a connection broke after the server had done so, the next attempt finds no file."""
    attempts = 0

    def move() -> None:
        nonlocal attempts
        attempts += 1
        try:
            fs.mv(part, path)
        except FileNotFoundError:
            if attempts == 1 or not fs.exists(path):
                raise

    with_retries(fs, move)


def create_bytes(fs: Any, path: str, data: bytes) -> bool:
    """Write a file if there is none, and return whether there was none. Of several processes that try, one succeeds."""
    if not is_local(fs):
        with_retries(fs, lambda: fs.makedirs(posixpath.dirname(path), exist_ok=True))
        try:
            fs.pipe_file(path, data, mode="create")  # object stores check it themselves
        except FileExistsError:
            return False
        return True
    part = Path(f"{path}.{uuid.uuid4().hex}{HALF_WRITTEN}")
    try:
        _write_through(part, data)
        _link(part, Path(path))
        _sync_folder(part.parent)
    except FileExistsError:
        return False
    finally:
        part.unlink(missing_ok=True)
    return True


def _link(part: Path, path: Path) -> None:
    """Give a file its name, unless that exists: unlike a rename, a link fails then."""
    try:
        os.link(part, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        path.open("xb").close()  # fails if the name exists; nobody else takes it now
        part.replace(path)


def with_retries(fs: Any, work: Callable[[], A]) -> A:
    """Return the result of work; at a URL it is tried several times before its error is raised."""
    for attempt in range(ATTEMPTS):
        try:
            return work()
        except _FINAL:
            raise
        except Exception:  # file systems raise many kinds when a connection breaks
            if is_local(fs) or attempt == ATTEMPTS - 1:
                raise
            time.sleep(PAUSE * 2**attempt)
    raise AssertionError


def _replace(path: Path, part: Path, data: bytes) -> None:
    _write_through(part, data)
    part.replace(path)
    _sync_folder(path.parent)


def _write_through(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Make a rename durable; not all systems can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
