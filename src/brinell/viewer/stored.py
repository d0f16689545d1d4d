"""What the viewer computes once and stores: beside the run, or in the user's cache folder where that can't be written."""

from __future__ import annotations

import hashlib

from brinell.caching import cache_folder
from brinell.errors import RunError
from brinell.runs.run import Run
from brinell.runs.store import Store

FOLDER = "viewer"  # in a run's folder


class Stored:
    """Files of the viewer that belong to a run."""

    def __init__(self, run: Run) -> None:
        name = hashlib.blake2b(run.folder.encode(), digest_size=8).hexdigest()
        self._places = [(run.store, (FOLDER,)), (Store(str(cache_folder() / FOLDER / name)), ())]

    def read(self, *path: str) -> bytes | None:
        """Return a file, or None if it isn't stored."""
        for store, folder in self._places:
            try:
                if store.exists(*folder, *path):
                    return store.read(*folder, *path)
            except (OSError, RunError):
                continue
        return None

    def write(self, data: bytes, *path: str) -> None:
        """Store a file where that is possible; otherwise it is computed again next time."""
        for store, folder in self._places:
            try:
                return store.write(data, *folder, *path)
            except (OSError, RunError, NotImplementedError):
                continue
        return None
