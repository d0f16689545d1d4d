"""Digests of several runs, computed in the background while pages show how far they are."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from brinell.viewer.digest import Digest, read_digest
from brinell.viewer.index import Opened

STALE = 5.0  # seconds after which the digest of an unfinished run is computed again
PATIENCE = 0.4  # seconds that a request waits before it reports progress


@dataclass
class Job:
    """One digest on its way."""

    state: tuple[Any, ...]
    done: threading.Event = field(default_factory=threading.Event)
    share: float = 0.0
    digest: Digest | None = None
    error: Exception | None = None
    finished: float = 0.0


class Stopped(Exception):
    """The viewer is closed while a digest is computed."""


class Digests:
    """Digests by run."""

    def __init__(self) -> None:
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._closed = False

    def close(self) -> None:
        """Stop computing; DuckDB must not be at work when the interpreter ends."""
        self._closed = True
        for thread in self._threads:
            thread.join()

    def get(self, identity: str, opened: Opened, patience: float = PATIENCE) -> Digest | float:
        """Return a run's digest; if it takes longer, the share that is done."""
        with self._lock:
            job = self._jobs.get(identity)
            if job is None or self._outdated(job, opened):
                previous, job = job, Job(opened.state)
                self._jobs[identity] = job
                if previous is not None and not opened.run.finished:
                    job.digest = previous.digest  # shown until the new one is there
                thread = threading.Thread(target=self._compute, args=(job, opened), daemon=True)
                self._threads = [*filter(threading.Thread.is_alive, self._threads), thread]
                thread.start()
        if job.digest is None:
            job.done.wait(patience)
        if job.error is not None:
            raise job.error
        return job.share if job.digest is None else job.digest

    def wait(self, identity: str, opened: Opened) -> Digest:
        """Return a run's digest, however long it takes."""
        found = self.get(identity, opened)
        while isinstance(found, float):
            found = self.get(identity, opened, patience=60)
        return found

    @staticmethod
    def _outdated(job: Job, opened: Opened) -> bool:
        if not job.done.is_set():
            return False
        stale = not opened.run.finished and time.monotonic() - job.finished > STALE
        return job.state != opened.state or stale

    def _compute(self, job: Job, opened: Opened) -> None:
        def report(share: float) -> None:
            job.share = share
            if self._closed:
                raise Stopped

        try:
            with opened.lock:
                job.digest = read_digest(opened.run, report)
                _ = opened.run.connection  # whoever opens an image next would wait for it
        except Exception as error:  # reported to whoever asked for it
            job.error = error
        finally:
            job.finished = time.monotonic()
            job.done.set()
