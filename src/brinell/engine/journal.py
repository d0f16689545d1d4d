"""What a long unit was told so far, so that a run that is stopped inside of it goes on there.

A lens that is asked again yields the same trials in the same order. Their outcomes are kept in files beside the rows, one
a yield, and given back instead of being asked for; when the unit's rows are written, they go.
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
from brinell.runs.store import Store

FOLDER = "unfinished"


class Journal:
    """The outcomes of one unit, by their places in the order of asking. Detections and distances are not kept."""

    def __init__(self, store: Store, unit: Unit) -> None:
        self.store = store
        names = (quote(part, safe="") for part in (unit.lens, unit.model, unit.operator))
        self.parts = FOLDER, *names, f"{unit.shard:05d}"

    def kept(self, place: int, count: int) -> Outcome | None:
        """What was answered to the trials of a place; None where they were not asked yet."""
        if not self.store.exists(*self.parts, f"{place}.npz"):
            return None
        with np.load(io.BytesIO(self.store.read(*self.parts, f"{place}.npz"))) as arrays:
            values = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
        broken = values.pop("broken")
        if len(broken) != count:  # of another version
            return None
        return Outcome(Verdict(**values), broken, no_difference(count, broken.device), None, None)

    def keep(self, place: int, outcome: Outcome) -> None:
        """Write down what was answered."""
        fields = {field.name: getattr(outcome.verdict, field.name) for field in dataclasses.fields(Verdict)}
        sink = io.BytesIO()
        np.savez(sink, broken=outcome.broken.cpu().numpy(), **{name: each.cpu().numpy() for name, each in fields.items()})
        self.store.write(sink.getvalue(), *self.parts, f"{place}.npz")

    def clear(self) -> None:
        """Forget the unit: its rows are there."""
        self.store.remove(*self.parts)
