"""What was computed of a long unit so far, so that an interrupted run resumes inside the unit.

A lens that runs again yields the same trials and tasks in the same order. Their results are stored in files next to the
rows and replayed instead of computed; they are removed when the unit's rows are written.
"""

from __future__ import annotations

import dataclasses
import io
import time
import zipfile
from urllib.parse import quote

import numpy as np
import torch

from brinell.criteria.verdict import Verdict
from brinell.lenses.method import Done, Outcome
from brinell.perturb.difference import no_difference
from brinell.runs.schema import Unit
from brinell.runs.store import UNFINISHED, Store

EVERY = 20.0  # seconds between two files of results of tasks
FORMAT = 2  # of these files; results of another are computed again


class Journal:
    """The outcomes and results of one unit, by the index of what the lens yielded.

    Outcomes are stored where the unit is known to be long (`trials`), one file each; detections and distances are not
    stored. Results of tasks are always stored, together every few seconds, so that a short unit writes none.
    """

    def __init__(self, store: Store, unit: Unit, *, trials: bool = False, share: tuple[float, float] = (0.0, 1.0)) -> None:
        self.store, self.trials = store, trials
        names = (quote(part, safe="") for part in (unit.lens, unit.model, unit.operator))
        part = "" if share == (0, 1) else f"-{share[0]!r}-{share[1]!r}"  # other trials than those of the whole unit
        self.parts = UNFINISHED, *names, f"{unit.shard:05d}{part}"
        self._pending: dict[str, np.ndarray] = {}
        self._files, self._written = 0, time.monotonic()
        self._stored: dict[int, Done] | None = None

    # ---- outcomes of trials ----

    def read(self, index: int, count: int) -> Outcome | None:
        """Return the outcome of the trials at an index; None if they were not queried yet."""
        arrays = self._read(f"{index}.npz")
        if arrays is None or len(arrays["broken"]) != count:  # written by another version
            return None
        values = {name: torch.from_numpy(array) for name, array in arrays.items()}
        broken = values.pop("broken")
        return Outcome(Verdict(**values), broken, no_difference(count, broken.device), None, None)

    def write(self, index: int, outcome: Outcome) -> None:
        """Store the outcome of the trials at an index."""
        fields = {field.name: getattr(outcome.verdict, field.name) for field in dataclasses.fields(Verdict)}
        arrays = {name: each.cpu().numpy() for name, each in fields.items()}
        self._write(f"{index}.npz", {"broken": outcome.broken.cpu().numpy(), **arrays})

    # ---- results of tasks ----

    def read_done(self, index: int, count: int) -> Done | None:
        """Return the results of the task at an index; None if it has not been run yet."""
        if self._stored is None:
            self._stored = self._read_files()
        done = self._stored.pop(index, None)
        if done is None or any(len(values) != count for values in done.values()):  # written by another version
            self._stored.clear()
            return None
        return done

    def _read_files(self) -> dict[int, Done]:
        stored: dict[int, Done] = {}
        while (arrays := self._read(f"tasks-{self._files}.npz")) is not None:
            self._files += 1
            if int(arrays.pop("format", 1)) != FORMAT:
                continue
            for key, array in arrays.items():
                index, _, name = key.partition(" ")
                stored.setdefault(int(index), {})[name] = torch.from_numpy(array)
        return stored

    def write_done(self, index: int, done: Done) -> None:
        """Keep the results of the task at an index; every few seconds they are written."""
        self._pending |= {f"{index} {name}": values.numpy() for name, values in done.items()}
        if time.monotonic() - self._written >= EVERY:
            self.flush()

    def flush(self) -> None:
        """Write the results that are kept."""
        if self._pending:
            self._write(f"tasks-{self._files}.npz", {"format": np.array(FORMAT), **self._pending})
            self._files, self._pending = self._files + 1, {}
        self._written = time.monotonic()

    # ---- files ----

    def _read(self, name: str) -> dict[str, np.ndarray] | None:
        """Return the arrays of a file; None if there is none, or if it is damaged: what it held is computed again."""
        data = self.store.read_if_there(*self.parts, name)
        try:
            return None if data is None else dict(np.load(io.BytesIO(data)))
        except (ValueError, OSError, EOFError, zipfile.BadZipFile):
            return None

    def _write(self, name: str, arrays: dict[str, np.ndarray]) -> None:
        sink = io.BytesIO()
        np.savez(sink, allow_pickle=False, **arrays)
        self.store.write(sink.getvalue(), *self.parts, name)

    def clear(self) -> None:
        """Remove what was stored, once the rows are written."""
        if self.trials or self._files:
            self.store.remove(*self.parts)
