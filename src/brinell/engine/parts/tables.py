"""Tables that the parts of a run make together, piece by piece, through nothing but the run's folder.

A part makes its own pieces first, then those that nobody has made by then: it never waits for a part that is slow, was
killed or has not started yet. Two parts that make the same piece write the same content.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain
from urllib.parse import quote

import pyarrow as pa

from brinell.engine.clean import CleanAnswers, advise
from brinell.engine.context import RunContext
from brinell.engine.manifest import same_settings
from brinell.engine.setup import RunSetup
from brinell.engine.survey import Survey, data_fingerprint
from brinell.errors import RunError
from brinell.models.model import Model
from brinell.runs.integrity import read_table
from brinell.runs.parts import PartFile
from brinell.runs.store import Store

SMALLEST, MOST = 32, 1024  # images of a piece of the survey, and number of pieces


def shared_table(part: PartFile, folder: tuple[str, ...], pieces: int, make: Callable[[int], pa.Table]) -> pa.Table:
    """Return a table of pieces; those that are not in the folder are made, this part's own first."""
    found: dict[int, pa.Table] = {}
    first = pieces * (part.part.number - 1) // part.part.count
    for number in chain(range(first, pieces), range(first)):
        name = "/".join((*folder, f"{number:05d}"))
        held = _piece(part.store, name)
        if held is None:
            held = make(number)
            part.store.write_table(name, held)
        found[number] = held.replace_schema_metadata(None)
    return pa.concat_tables([found[number] for number in range(pieces)], promote_options="permissive")


def _piece(store: Store, name: str) -> pa.Table | None:
    """Return a piece; None if it is missing or damaged, or was removed just now because the run is finished."""
    try:
        return read_table(store, name)[0]
    except RunError:
        return None


def survey_together(survey: Survey, setup: RunSetup, part: PartFile, advance: Callable[[int], None]) -> pa.Table:
    """Return the table of the samples: the run's, or one whose pieces the parts make together.

    Images that another part has read are not read again; those that this part measures are compared when they are loaded.
    """
    store, indices = part.store, survey.indices
    held = _held_samples(store, setup)
    if held is not None and held["index"].to_pylist() == indices:
        return held
    size = max(SMALLEST, math.ceil(len(indices) / MOST))

    def make(number: int) -> pa.Table:
        return survey.read(indices[number * size : (number + 1) * size], advance)

    folder = (*part.folder, "samples", str(len(indices)))
    return survey.checked(shared_table(part, folder, math.ceil(len(indices) / size), make))


def _held_samples(store: Store, setup: RunSetup) -> pa.Table | None:
    """Return the samples that the folder holds of this run; None if there are none."""
    if not store.exists("manifest.json") or not same_settings(store, setup):
        return None
    try:
        table = store.table("samples")
    except RunError:
        return None
    return table if data_fingerprint(table) == store.manifest()["identity"]["data"]["fingerprint"] else None


def clean_together(context: RunContext, model: Model, part: PartFile, advance: Callable[[int], None]) -> pa.Table:
    """Return a model's clean answers, whose pieces the parts make together."""
    answers = CleanAnswers(context, model)
    count = len(answers.entries)
    size = int(context.manifest["execution"]["shard"]) if answers.divisible else max(1, count)

    def make(number: int) -> pa.Table:
        return answers.table(answers.entries[number * size : (number + 1) * size], advance, first=number == 0)

    data = context.manifest["identity"]["data"]["fingerprint"]
    folder = (*part.folder, "clean", data, quote(model.name, safe=""))
    table = shared_table(part, folder, max(1, math.ceil(count / size)), make)
    advise(context, model, table)
    return table
