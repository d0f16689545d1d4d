"""What processes that measure one run together keep in its folder, each in files of its own.

parts/RUN/samples/COUNT/00003.parquet           some of the images of the survey; RUN is a digest of the settings
parts/RUN/clean/DATA/MODEL/00003.parquet        a model's answers to some of the clean images
parts/RUN/part-00003-of-00016.json              what a part has done, written every few seconds while it runs

Pieces of tables are removed when the run is finished. Nothing here is needed to read a run.
"""

from __future__ import annotations

import hashlib
import json
import platform
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from brinell.config.part import PartOfRun
from brinell.errors import RunError
from brinell.runs.store import Store

FOLDER = "parts"
EVERY = 10.0  # seconds between two records of a part
MEASURING, DONE = "measuring", "done"


def settings_digest(identity: Mapping[str, Any]) -> str:
    """Return 16 hex digits that identify a run's settings, which are known before its images were read."""
    own = {"config": identity["config"], "models": identity["models"]}
    return hashlib.blake2b(json.dumps(own, sort_keys=True).encode(), digest_size=8).hexdigest()


@dataclass
class Record:
    """What a part has done so far: its state, the stage that it is in, and what the finished run adds up."""

    number: int
    count: int
    state: str = MEASURING
    stage: str = ""
    done: int = 0  # steps of the stage
    total: int = 0
    unit: str = ""
    host: str = field(default_factory=platform.node)
    started: float = field(default_factory=time.time)
    updated: float = field(default_factory=time.time)
    seconds: float = 0.0  # of all attempts
    facts: dict[str, Any] = field(default_factory=dict)  # queries to services, warnings


class PartFile:
    """The record of this process's part, written as it changes."""

    def __init__(self, store: Store, run: str, part: PartOfRun) -> None:
        self.store, self.part, self.parts = store, part, _record_file(run, part)
        self.record = Record(part.number, part.count)
        self.held = _read(store, *self.parts) or self.record  # of an attempt before this one
        self._before = self.held.seconds
        self._began, self._written = time.monotonic(), -EVERY

    @property
    def folder(self) -> tuple[str, ...]:
        """Where the parts keep their files."""
        return self.parts[:-1]

    def write(self, *, at_once: bool = True, **changes: Any) -> None:
        """Store changes, at once or with the next ones."""
        for name, value in changes.items():
            setattr(self.record, name, value)
        now = time.monotonic()
        if at_once or now - self._written >= EVERY:
            self._written = now
            self.record.updated, self.record.seconds = time.time(), round(self._before + now - self._began, 1)
            self.store.write(json.dumps(asdict(self.record)).encode(), *self.parts)

    def keep(self, facts: Mapping[str, Any]) -> None:
        """Store facts that the finished run adds up."""
        self.write(facts={**self.record.facts, **facts})


def read_records(store: Store, run: str) -> Iterator[Record]:
    """Yield the records of all parts, in the order of their numbers."""
    for name in store.names(FOLDER, run):
        if name.endswith(".json") and (record := _read(store, FOLDER, run, name)) is not None:
            yield record


def _record_file(run: str, part: PartOfRun) -> tuple[str, ...]:
    return FOLDER, run, f"part-{part.number:05d}-of-{part.count:05d}.json"


def _read(store: Store, *parts: str) -> Record | None:
    """Return a record; None if there is none that can be read, which costs nothing but what it says."""
    try:
        return Record(**store.read_json(*parts))
    except (RunError, TypeError):
        return None
