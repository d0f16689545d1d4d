"""Drawn pairs: pictures of the maps before and after a change, stored with a run for its report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from brinell.marks import Mark, read_marks
from brinell.runs.run import Run

FOLDER, FILE = "saliency", "pairs.json"


@dataclass(frozen=True)
class SaliencyPair:
    """A drawn pair: the changed image, the model's predictions before and after, and how far its saliency shifts.

    `label` is also what the model predicts before the change: only images that are right when clean are compared. Of
    detectors: `clean_marks` and `marks` are the boxes before and after the change.
    """

    lens: str
    model: str
    operator: str
    image: str
    label: int
    prediction: int
    overlap: float
    shifted: bool
    file: str
    clean_marks: tuple[Mark, ...] = ()
    marks: tuple[Mark, ...] = ()


def write_pairs(run: Run, pairs: Sequence[SaliencyPair]) -> None:
    """Store the list of drawn pairs, whose pictures are stored already."""
    run.store.write(json.dumps([asdict(pair) for pair in pairs]).encode(), FOLDER, FILE)


def read_pairs(run: Run) -> list[SaliencyPair]:
    """Return the drawn pairs; none if the run has no pictures."""
    if not run.store.exists(FOLDER, FILE):
        return []
    return [_read(record) for record in run.store.read_json(FOLDER, FILE)]


def _read(record: dict[str, Any]) -> SaliencyPair:
    return SaliencyPair(**record | {name: read_marks(record.get(name, ())) for name in ("clean_marks", "marks")})
