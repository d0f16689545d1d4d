"""The outcomes of a long unit so far, so that an interrupted run resumes inside the unit.

A lens that runs again yields the same trials in the same order. Their outcomes are stored in files next to the rows, one
per yield, and replayed instead of queried; they are removed when the unit's rows are written.
"""

from __future__ import annotations

import dataclasses
import io
from urllib.parse import quote

import numpy as np
import torch

from brinell.criteria.verdict import Verdict
from brinell.lenses.method import Outcome
from brinell.perturb.difference import no_difference
from brinell.runs.schema import Unit
from brinell.runs.store import UNFINISHED, Store


class Journal:
    """The outcomes of one unit, by the index of the query. Detections and distances are not stored."""

    def __init__(self, store: Store, unit: Unit) -> None:
        self.store = store
        names = (quote(part, safe="") for part in (unit.lens, unit.model, unit.operator))
        self.parts = UNFINISHED, *names, f"{unit.shard:05d}"

    def read(self, index: int, count: int) -> Outcome | None:
        """Return the outcome of the trials at an index; None if they were not queried yet."""
        if not self.store.exists(*self.parts, f"{index}.npz"):
            return None
        with np.load(io.BytesIO(self.store.read(*self.parts, f"{index}.npz"))) as arrays:
            values = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
        broken = values.pop("broken")
        if len(broken) != count:  # written by another version
            return None
        return Outcome(Verdict(**values), broken, no_difference(count, broken.device), None, None)

    def write(self, index: int, outcome: Outcome) -> None:
        """Store the outcome of the trials at an index."""
        fields = {field.name: getattr(outcome.verdict, field.name) for field in dataclasses.fields(Verdict)}
        sink = io.BytesIO()
        np.savez(sink, broken=outcome.broken.cpu().numpy(), **{name: each.cpu().numpy() for name, each in fields.items()})
        self.store.write(sink.getvalue(), *self.parts, f"{index}.npz")

    def clear(self) -> None:
        """Remove the outcomes, once the rows are written."""
        self.store.remove(*self.parts)
