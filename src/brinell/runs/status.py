"""How far a run is, from the names and times of its files and the records of its parts: nothing is opened but those."""

from __future__ import annotations

import heapq
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import unquote

from brinell.config.part import owners
from brinell.errors import RunError
from brinell.runs.parts import DONE, Record, read_records, settings_digest
from brinell.runs.store import Store

RECENT = 256  # latest units, which the rate is computed from
STUCK = 600.0  # seconds without a sign of life; units take about one minute at most
FINISHED, MEASURING, STUCK_PART, MISSING, INCOMPLETE = "done", "measuring", "stuck", "not started", "incomplete"


@dataclass(frozen=True)
class JobStatus:
    """A lens and a model: units that have rows, and all of them (None: not known yet)."""

    lens: str
    model: str
    done: int
    total: int | None


@dataclass(frozen=True)
class PartStatus:
    """A part: its state, units that have rows, all of them, and what it reported last, so many seconds ago."""

    number: int
    state: str
    done: int
    total: int
    stage: str = ""
    host: str = ""
    ago: float | None = None


@dataclass(frozen=True)
class Status:
    """A run's progress. Rate (units per second) and time left are None where they are not known."""

    url: str
    finished: bool
    jobs: tuple[JobStatus, ...]
    parts: tuple[PartStatus, ...]
    rate: float | None
    idle: float | None
    seconds_left: float | None

    @property
    def done(self) -> int:
        """Units that have rows."""
        return sum(job.done for job in self.jobs)

    @property
    def total(self) -> int | None:
        """All units; None until every job has begun."""
        totals = [job.total for job in self.jobs if job.total is not None]
        return sum(totals) if len(totals) == len(self.jobs) else None

    def to_json(self) -> dict[str, Any]:
        """Return the status as plain data."""
        return {"version": 1, **asdict(self), "done": self.done, "total": self.total}


@dataclass(frozen=True)
class _Folder:
    """Files of rows under one change: the shards that they hold, when one was written last, and when each was."""

    lens: str
    model: str
    shards: list[int]
    changed: float
    times: Callable[[], list[float]]


@dataclass
class _Seen:
    """What the files of rows say, counted as they are listed."""

    jobs: Counter[tuple[str, str]] = field(default_factory=Counter)
    parts: Counter[int] = field(default_factory=Counter)
    times: list[float] = field(default_factory=list)  # the latest ones, latest first


def read_status(url: str, now: float | None = None) -> Status:
    """Return how far the run in a folder is."""
    store, now = Store(url), time.time() if now is None else now
    if not store.exists("manifest.json"):
        raise RunError(f"{store.url} is not the folder of a brinell run, or none of its parts has read the images yet")
    manifest = store.manifest()
    records = _latest(list(read_records(store, settings_digest(manifest["identity"]))))
    shards: Mapping[str, int] = manifest.get("shards", {})
    count = records[0].count if records else 0
    seen = _look(store, {job: owners(number, count) for job, number in shards.items()} if count else {})
    totals = manifest.get("units", {})
    names = [
        (lens["name"], model)
        for lens in manifest["identity"]["config"]["lenses"]
        for model in manifest["identity"]["models"]
    ]
    jobs = tuple(JobStatus(*name, seen.jobs[name], totals.get("/".join(name))) for name in names)
    finished = bool(manifest.get("finished"))
    left = sum(max(0, job.total - job.done) for job in jobs if job.total is not None)
    rate, idle = _rate(seen.times), now - max(seen.times) if seen.times else None
    owned, by_number = _owned(shards, totals, count), {record.number: record for record in records}
    return Status(
        store.url,
        finished,
        jobs,
        tuple(_part(number, by_number.get(number), seen, owned, now) for number in range(1, count + 1)),
        rate,
        idle,
        left / rate if rate and left and not finished else None,
    )


def _latest(records: list[Record]) -> list[Record]:
    """Return the records of the division that was used last: a run may have been in 4 parts, and then in 16."""
    if not records:
        return []
    count = max(records, key=lambda record: record.updated).count
    return [record for record in records if record.count == count]


def _owned(shards: Mapping[str, int], totals: Mapping[str, int], count: int) -> Counter[int]:
    """Return the number of units of each part."""
    owned: Counter[int] = Counter()
    for job, number in shards.items():
        changes = totals.get(job, 0) // max(1, number)
        for part in owners(number, count) if count else ():
            owned[part] += changes
    return owned


def _part(number: int, record: Record | None, seen: _Seen, owned: Counter[int], now: float) -> PartStatus:
    done, total = seen.parts[number], owned[number]
    if record is None:
        return PartStatus(number, MISSING, done, total)
    ago = max(0.0, now - record.updated)
    if record.state == DONE:
        state = FINISHED if done >= total else INCOMPLETE
    else:
        state = STUCK_PART if ago > STUCK else MEASURING
    return PartStatus(number, state, done, total, record.stage, record.host, ago)


def _look(store: Store, owner: Mapping[str, tuple[int, ...]]) -> _Seen:
    """Count the files of rows by job and by part, and keep the latest times: memory doesn't grow with the run."""
    seen = _Seen()
    for folder in _local(store.path("rows")) if store.is_local else _remote(store):
        seen.jobs[folder.lens, folder.model] += len(folder.shards)
        parts = owner.get(f"{folder.lens}/{folder.model}", ())
        seen.parts.update(parts[shard] for shard in folder.shards if shard < len(parts))
        if len(seen.times) < RECENT or folder.changed > seen.times[-1]:
            seen.times = heapq.nlargest(RECENT, (*seen.times, *folder.times()))
    return seen


def _shard(name: str) -> int | None:
    """Return the shard of a file of rows; None if it is another file."""
    return int(name[:-8]) if name.endswith(".parquet") and name[:-8].isdecimal() else None


def _local(root: str) -> Iterator[_Folder]:
    """Yield the folders of a run's units, the one that was changed last first.

    The time of every file takes a system call, and only the latest ones are wanted: older folders don't have them.
    """
    changed: dict[tuple[str, ...], tuple[float, str]] = {}
    for lens in _entries(root):
        for model in _entries(lens.path):
            for operator in _entries(model.path):
                if operator.is_dir(follow_symlinks=False):
                    changed[lens.name, model.name, operator.name] = _time(operator), operator.path
    for (first, second, _), (latest, path) in sorted(changed.items(), key=lambda item: item[1], reverse=True):
        units = {shard: entry for entry in _entries(path) if (shard := _shard(entry.name)) is not None}
        yield _Folder(unquote(first), unquote(second), list(units), latest, partial(_times, units.values()))


def _entries(path: str) -> list[os.DirEntry[str]]:
    """Return what is in a folder; nothing if it is none."""
    try:
        with os.scandir(path) as found:
            return list(found)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _times(entries: Iterable[os.DirEntry[str]]) -> list[float]:
    return [_time(entry) for entry in entries]


def _time(entry: os.DirEntry[str]) -> float:
    """Return when a file or folder was written; 0 if it is gone."""
    try:
        return entry.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _remote(store: Store) -> Iterator[_Folder]:
    """Yield the same for the objects at a URL; a listing has their times."""
    root = store.path("rows")
    for folder, _, files in store.fs.walk(root, detail=True):
        place = folder.removeprefix(root).strip("/").split("/")
        units = {shard: _written(facts) for name, facts in files.items() if (shard := _shard(name)) is not None}
        if len(place) == 3 and units:
            times = list(units.values())
            yield _Folder(unquote(place[0]), unquote(place[1]), list(units), max(times), partial(list, times))


def _written(facts: Mapping[str, Any]) -> float:
    """Return when an object was written: file systems name it differently."""
    found = next(
        (facts[key] for key in ("LastModified", "mtime", "last_modified", "updated", "created") if key in facts), 0.0
    )
    if isinstance(found, str):
        found = datetime.fromisoformat(found)
    return found.timestamp() if isinstance(found, datetime) else float(found)


def _rate(times: list[float]) -> float | None:
    """Return units per second, from the latest ones."""
    return (len(times) - 1) / (max(times) - min(times)) if len(times) > 1 and max(times) > min(times) else None
