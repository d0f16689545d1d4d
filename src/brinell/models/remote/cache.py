"""The cache of services' answers, an SQLite file, which also counts the images that each run has sent.

An answer is stored as soon as it arrives, under the service (URL and request, without secrets) and the image, so that no
query is paid for twice.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
import weakref
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from brinell.caching import cache_folder
from brinell.errors import BudgetSpent, RunError
from brinell.models.model import Counts

FORMAT = 1
MAX_CLAIM = 900.0  # seconds that a process may take for one request, retries included
# `asked` is the date of an answer in one table, and the number of images sent in the other
_TABLES = """
    create table if not exists answers (
        service text, image text, answer blob, asked text, primary key (service, image)) without rowid;
    create table if not exists counts (
        run text, service text, asked integer, cached integer, oldest text, primary key (run, service)) without rowid;
    create table if not exists claims (
        service text, image text, process integer, since real, primary key (service, image)) without rowid;
"""
_COUNT = """
    insert into counts values (:run, :service, :sent, :cached, :oldest)
    on conflict do update set asked = asked + excluded.asked, cached = cached + excluded.cached,
        oldest = coalesce(min(oldest, excluded.oldest), oldest, excluded.oldest)
"""


def default_file() -> Path:
    """Return the cache file that all runs of a user share."""
    return cache_folder() / "answers.sqlite"


class AnswerCache:
    """A cache file. Several threads and processes may use it at the same time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        with self._translate_errors():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch(mode=0o600)  # answers are nobody else's business; SQLite's other files get the same mode
            self._connection = sqlite3.connect(path, timeout=60, check_same_thread=False, isolation_level=None)
            weakref.finalize(self, self._connection.close)
            self._connection.execute("pragma journal_mode = wal")
            self._connection.execute("pragma synchronous = normal")  # killing the process loses nothing
            (version,) = self._connection.execute("pragma user_version").fetchone()
            if version not in (0, FORMAT):
                raise RunError(
                    f"{path} was written by another version of brinell; move it away, or set execution.answers=FILE"
                )
            self._connection.executescript(f"{_TABLES} pragma user_version = {FORMAT};")

    def read(self, service: str, images: Iterable[str]) -> dict[str, tuple[Any, str]]:
        """Return the cached answers for images, with their dates."""
        found = {}
        with self._translate_errors(), self._lock:
            for image in images:
                row = self._connection.execute(
                    "select answer, asked from answers where service = ? and image = ?", (service, image)
                ).fetchone()
                if row is not None:
                    found[image] = (json.loads(zlib.decompress(row[0])), row[1])
        return found

    def store(self, service: str, answers: Mapping[str, Any]) -> None:
        """Store answers durably, whatever happens to this process afterwards."""
        date = time.strftime("%Y-%m-%d")
        rows = [(service, image, zlib.compress(json.dumps(answer).encode(), 1), date) for image, answer in answers.items()]
        with self._transaction() as connection:
            connection.executemany("insert or replace into answers values (?, ?, ?, ?)", rows)

    def claim(self, service: str, images: Iterable[str]) -> set[str]:
        """Return those images that this process may send; another process is sending the others at this moment.

        Claims of processes that have ended, or that are too old, count for nothing.
        """
        own, now = os.getpid(), time.time()
        mine = set()
        with self._transaction() as connection:
            for image in images:
                key = (service, image)
                row = connection.execute(
                    "select process, since from claims where service = ? and image = ?", key
                ).fetchone()
                if row is None or row[0] == own or row[1] < now - MAX_CLAIM or not _is_alive(row[0]):
                    connection.execute("insert or replace into claims values (?, ?, ?, ?)", (*key, own, now))
                    mine.add(image)
        return mine

    def release(self, service: str, images: Iterable[str]) -> None:
        """Give claims back, whether the images were answered or not."""
        rows = [(service, image, os.getpid()) for image in images]
        with self._transaction() as connection:
            connection.executemany("delete from claims where service = ? and image = ? and process = ?", rows)

    def spend(self, run: str, service: str, images: int, limit: int | None) -> None:
        """Count images that are about to be sent, and raise if the run would exceed its limit."""
        with self._transaction() as connection:
            if limit is not None:
                (sent,) = connection.execute("select sum(asked) from counts where run = ?", (run,)).fetchone()
                if (sent or 0) + images > limit:
                    raise BudgetSpent(
                        f"{sent or 0:,} of {limit:,} queries sent; rerun with a larger --max-queries to resume (answers "
                        f"are kept in {self.path})"
                    )
            connection.execute(_COUNT, {"run": run, "service": service, "sent": images, "cached": 0, "oldest": None})

    def count_cached(self, run: str, service: str, images: int, oldest: str | None) -> None:
        """Count images that were answered from the cache."""
        with self._transaction() as connection:
            connection.execute(_COUNT, {"run": run, "service": service, "sent": 0, "cached": images, "oldest": oldest})

    def counts(self, run: str, service: str) -> Counts:
        """Return the queries of a run to a service."""
        with self._translate_errors(), self._lock:
            row = self._connection.execute(
                "select asked, cached, oldest from counts where run = ? and service = ?", (run, service)
            ).fetchone()
        return Counts() if row is None else Counts(*row)

    def rename(self, old: str, new: str, service: str) -> None:
        """Add what was counted under one name to another."""
        counts = self.counts(old, service)
        with self._transaction() as connection:
            connection.execute("delete from counts where run = ? and service = ?", (old, service))
            if counts != Counts():
                connection.execute(_COUNT, {"run": new, "service": service, **vars(counts)})

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._translate_errors(), self._lock:
            self._connection.execute("begin immediate")
            try:
                yield self._connection
                self._connection.execute("commit")
            except BaseException:
                self._connection.execute("rollback")
                raise

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, zlib.error, ValueError) as error:
            raise RunError(
                f"the cache of answers {self.path} can't be used: {error}; set another with execution.answers=FILE"
            ) from error


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is another user's
        return True
    return True
