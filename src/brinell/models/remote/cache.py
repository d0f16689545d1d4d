"""What services answered, kept in a file as soon as it comes, and how many images each run has sent.

An answer is named by the service (URL and request, without secrets) and the image, so none has to be paid for twice.
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brinell.errors import BudgetSpent, RunError

FORMAT = 1
_TABLES = """
    create table if not exists answers (
        service text, image text, answer blob, asked text, primary key (service, image)) without rowid;
    create table if not exists counts (
        run text, service text, asked integer, cached integer, oldest text, primary key (run, service)) without rowid;
"""
_COUNT = """
    insert into counts values (:run, :service, :asked, :cached, :oldest)
    on conflict do update set asked = asked + excluded.asked, cached = cached + excluded.cached,
        oldest = coalesce(min(oldest, excluded.oldest), oldest, excluded.oldest)
"""


@dataclass(frozen=True)
class Counts:
    """Images that were sent, retries and all, images that were answered from the file, and the day of the oldest answer."""

    asked: int = 0
    cached: int = 0
    oldest: str | None = None


def usual_file() -> Path:
    """The file for all of a user's runs."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "brinell" / "answers.sqlite"


class Answers:
    """One such file. Several threads and processes may use it at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        with self._telling():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._connection = sqlite3.connect(path, timeout=60, check_same_thread=False, isolation_level=None)
            weakref.finalize(self, self._connection.close)
            self._connection.execute("pragma journal_mode = wal")
            self._connection.execute("pragma synchronous = normal")  # a kill loses nothing
            (version,) = self._connection.execute("pragma user_version").fetchone()
            if version not in (0, FORMAT):
                raise RunError(
                    f"{path} was written by another version of brinell; move it away, or give execution.answers=FILE"
                )
            self._connection.executescript(f"{_TABLES} pragma user_version = {FORMAT};")

    def read(self, service: str, images: Iterable[str]) -> dict[str, tuple[Any, str]]:
        """What was answered about images, and the day, as far as it was."""
        found = {}
        with self._telling(), self._lock:
            for image in images:
                row = self._connection.execute(
                    "select answer, asked from answers where service = ? and image = ?", (service, image)
                ).fetchone()
                if row is not None:
                    found[image] = (json.loads(zlib.decompress(row[0])), row[1])
        return found

    def keep(self, service: str, answers: Mapping[str, Any]) -> None:
        """Keep answers; whoever asks for them from now on finds them, whatever happens to this process."""
        day = time.strftime("%Y-%m-%d")
        rows = [(service, image, zlib.compress(json.dumps(answer).encode(), 1), day) for image, answer in answers.items()]
        with self._transaction() as connection:
            connection.executemany("insert or replace into answers values (?, ?, ?, ?)", rows)

    def spend(self, run: str, service: str, images: int, limit: int | None) -> None:
        """Count images that are about to be sent, or raise where the whole run would send more than its limit."""
        with self._transaction() as connection:
            if limit is not None:
                (asked,) = connection.execute("select sum(asked) from counts where run = ?", (run,)).fetchone()
                if (asked or 0) + images > limit:
                    raise BudgetSpent(
                        f"{asked or 0:,} queries were asked, and --max-queries allows {limit:,}; all answers are kept in "
                        f"{self.path}: give the same command with a larger --max-queries to go on"
                    )
            connection.execute(_COUNT, {"run": run, "service": service, "asked": images, "cached": 0, "oldest": None})

    def count_cached(self, run: str, service: str, images: int, oldest: str | None) -> None:
        """Count images that were answered from the file."""
        with self._transaction() as connection:
            connection.execute(_COUNT, {"run": run, "service": service, "asked": 0, "cached": images, "oldest": oldest})

    def counts(self, run: str, service: str) -> Counts:
        """What a run has asked of a service so far."""
        with self._telling(), self._lock:
            row = self._connection.execute(
                "select asked, cached, oldest from counts where run = ? and service = ?", (run, service)
            ).fetchone()
        return Counts() if row is None else Counts(*row)

    def rename(self, old: str, new: str, service: str) -> None:
        """Let what was counted under a first name count for a run."""
        counts = self.counts(old, service)
        with self._transaction() as connection:
            connection.execute("delete from counts where run = ? and service = ?", (old, service))
            if counts != Counts():
                connection.execute(_COUNT, {"run": new, "service": service, **vars(counts)})

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._telling(), self._lock:
            self._connection.execute("begin immediate")
            try:
                yield self._connection
                self._connection.execute("commit")
            except BaseException:
                self._connection.execute("rollback")
                raise

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError, zlib.error, ValueError) as error:
            raise RunError(
                f"the file of answers {self.path} can't be used: {error}; give another with execution.answers=FILE"
            ) from error
