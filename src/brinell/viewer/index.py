"""The runs that the viewer shows: given, or found below folders and URLs, each with a short id for links."""

from __future__ import annotations

import os
import posixpath
import re
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from brinell.errors import BrinellError, RunError
from brinell.registry import nearest
from brinell.runs.run import Run
from brinell.runs.store import Store
from brinell.viewer.remote import MirroredStore, version_of

PATIENCE = 3.0  # seconds until a run at a URL is looked at again
DEPTH = 3  # folders below a given one in which runs are looked for
MANIFEST = "manifest.json"
_INSIDE = {"rows", "exhibits", "saliency", "unfinished", "viewer"}  # folders of a run, which hold no runs


def find_runs(place: str) -> list[str]:
    """Return the folders of the runs at a place: itself, or those below it. A place that doesn't exist has none."""
    store = Store(place)
    if store.is_local:
        return [store.url] if store.exists(MANIFEST) else sorted(_walk(store.root, DEPTH))
    try:
        return _find_remote(store)
    except Exception as error:  # every file system has its own
        raise RunError(
            f"can't look for runs at {place}: {error}; check the address, the network and your rights"
        ) from error


def _find_remote(store: Store) -> list[str]:
    store.fs.invalidate_cache()  # listings of buckets are kept
    if store.exists(MANIFEST):
        return [store.url]
    patterns = (posixpath.join(store.root, *["*"] * depth, MANIFEST) for depth in range(1, DEPTH + 1))
    found = sorted(path for pattern in patterns for path in store.fs.glob(pattern))
    return [store.fs.unstrip_protocol(posixpath.dirname(path)) for path in found]


def _walk(folder: str, depth: int) -> Iterator[str]:
    """Yield the local folders of runs below a folder."""
    try:
        inside = sorted(entry.path for entry in os.scandir(folder) if entry.is_dir() and entry.name not in _INSIDE)
    except OSError:
        return
    for path in inside:
        if Path(path, MANIFEST).exists():
            yield path
        elif depth > 1:
            yield from _walk(path, depth - 1)


def name_runs(folders: Sequence[str]) -> dict[str, str]:
    """Return folders by ids: the last part of each path, and as many more as tell them apart."""
    parts = [folder.rstrip("/").split("/") for folder in folders]
    found: dict[str, str] = {}
    for folder, own in zip(folders, parts, strict=True):
        alike = [other for other in parts if other is not own]
        depth = next((n for n in range(1, len(own)) if all(other[-n:] != own[-n:] for other in alike)), len(own))
        identity = re.sub(r"[^\w.-]+", "~", "~".join(own[-depth:])).strip("~") or "run"
        number, base = 2, identity
        while identity in found:
            identity, number = f"{base}~{number}", number + 1
        found[identity] = folder
    return found


@dataclass
class Opened:
    """An opened run with a lock: its DuckDB connection serves one request at a time."""

    run: Run
    state: tuple[Any, ...]
    looked: float = field(default_factory=time.monotonic)
    lock: threading.RLock = field(default_factory=threading.RLock)

    @cached_property
    def image_count(self) -> int | None:
        """The number of images; None before they were read."""
        store = self.run.store
        return store.table("samples").num_rows if store.exists("samples.parquet") else None


class RunIndex:
    """The runs at some places. Folders are looked at again whenever the list is requested, so that new runs appear."""

    def __init__(self, places: Sequence[str]) -> None:
        self.places = tuple(places)
        self._opened: dict[str, Opened] = {}
        self._lock = threading.Lock()
        self._folders: dict[str, str] = {}
        self.problems: dict[str, BrinellError] = {}

    def folders(self) -> dict[str, str]:
        """Return the folders of all runs by id; places that can't be looked at are in `problems`."""
        found: dict[str, None] = {}
        problems: dict[str, BrinellError] = {}
        for place in self.places:
            try:
                found |= dict.fromkeys(find_runs(place))
            except BrinellError as error:
                problems[place] = error
        self._folders, self.problems = name_runs(list(found)), problems
        return self._folders

    def open(self, identity: str) -> Opened:
        """Return a run by its id, opened once and again when it has changed."""
        folder = self._folders.get(identity) or self.folders().get(identity)
        if folder is None:
            raise RunError(f"there is no run {identity!r} here; {nearest(identity, list(self._folders))}")
        with self._lock:
            store, known = Store(folder), self._opened.get(identity)
            if known is not None and not store.is_local and time.monotonic() - known.looked < PATIENCE:
                return known
            state = _state(store)
            if known is None or known.state != state:
                known = self._opened[identity] = Opened(_open_run(store, state), state)
            known.looked = time.monotonic()
            return known

    def all(self) -> Iterator[tuple[str, str, Opened | BrinellError]]:
        """Yield the id and folder of every run with the opened run, or with the error that opening it raises."""
        for identity, folder in self.folders().items():
            try:
                yield identity, folder, self.open(identity)
            except BrinellError as error:
                yield identity, folder, error
        for place, problem in self.problems.items():
            yield place, place, problem


def _open_run(store: Store, state: tuple[Any, ...]) -> Run:
    """Return the opened run; one at a URL is read through local copies of its files."""
    if store.is_local:
        return Run(store)
    mirror = MirroredStore(store.url, " ".join(map(str, state)))
    run = Run(mirror)
    mirror.finished = run.finished
    return run


def _state(store: Store) -> tuple[Any, ...]:
    """Return what tells an opened run from one that was written since."""
    path = store.path(MANIFEST)
    if store.is_local:
        facts = Path(path).stat()
        return facts.st_mtime, facts.st_size
    store.fs.invalidate_cache()
    try:
        return (version_of(store.fs.info(path)),)
    except OSError as error:
        raise RunError(f"can't read {store.place(MANIFEST)}: {error}; is the address right?") from error
