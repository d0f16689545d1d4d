"""What stands for an image under an operator of a lens: its share of the lens's hardness, or else a measure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brinell.lenses.lens import LENSES
from brinell.lenses.reader import Reader
from brinell.runs.run import Run

HARDNESS = "hardness"
Array = NDArray[Any]


def readers(lens: str) -> Reader:
    """Return how a lens's rows are read."""
    return LENSES[lens].reader


@dataclass(frozen=True)
class Values:
    """One number per model, operator and image: SQL that selects them, and what they are."""

    name: str
    what: str
    better: str
    points: bool
    sql: str


def values_of(run: Run, lens: str) -> list[Values]:
    """Return what may stand for an image under a lens, the best first: hardness, or else a measure that has values."""
    reader, found = readers(lens), []
    if reader.hardness is not None:
        found.append(Values(HARDNESS, reader.hardness.meaning, "higher", True, reader.hardness.sql))
    usable = sorted((one for one in reader.measures if not one.by_level), key=lambda one: not one.headline)
    for one in usable:
        found.append(Values(one.name, one.what, one.better, one.unit == "points", one.sql.format(**run.lens(lens))))
    return found


def by_model(owners: Array, run: Run) -> list[tuple[str, Array]]:
    """Return the models of the run with the rows that are theirs."""
    owners = np.asarray(owners).astype(object)
    return [(model, mine) for model in run.models if (mine := owners == model).any()]
