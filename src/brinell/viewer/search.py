"""The weakest change that breaks a model on one photograph, by whichever lens searches for it. Imports torch."""

from __future__ import annotations

from typing import Any

import duckdb
import pyarrow as pa

from brinell.config.lens import LensOptions
from brinell.engine.evaluator import Evaluator
from brinell.engine.rows import rows_table
from brinell.engine.shards import Entry
from brinell.engine.threads import torch_alone
from brinell.errors import BrinellError
from brinell.lenses.lens import LENSES, Lens
from brinell.lenses.reader import FAILURE_COLUMNS
from brinell.models.model import Model
from brinell.perturb.change import Change
from brinell.runs.arrow import arrow_schema
from brinell.runs.schema import ROWS, Unit

QUICK = "quick"  # the preset that a search runs with, where its lens has it


def find_break(evaluator: Evaluator, image: str, model: Model, change: Change) -> dict[str, Any] | None:
    """Return the weakest change that breaks a model, and the number of queries; None if no lens searches for it."""
    found = find_lens(change)
    if found is None:
        return None
    lens, options, own = found
    before = evaluator.queries
    with torch_alone():
        columns = evaluator.drive(lens.method.measure(evaluator.shard(), own, options))
    schema = arrow_schema(ROWS, lens.reader.columns)
    unit = Unit(lens.name, model.name, own.id, 0)
    height, width = evaluator.renderer.originals[0].shape[1:]
    entry = Entry(0, image, "photograph", (height, width))
    rows = rows_table(unit, [entry], evaluator.labels.cpu(), columns, schema)
    failure = _weakest(lens, options, rows, (height, width))
    size = model.preprocess.height, model.preprocess.width
    result: dict[str, Any] = {"queries": evaluator.queries - before, "parameters": failure}
    if failure is not None:
        result["caption"] = own.caption(failure, size)
    return result


def find_lens(change: Change) -> tuple[Lens, LensOptions, Change] | None:
    """Return a lens that searches over a change, with quick options, and the change as the lens has it."""
    for lens in LENSES.values():
        if not lens.method.search:
            continue
        preset = {"preset": QUICK} if QUICK in lens.options.known_presets() else {}
        try:
            options = lens.options.model_validate({**preset, "operators": (change.id,)})
            changes = list(lens.method.changes(options))
        except (BrinellError, ValueError):  # this lens has no such operator
            continue
        own = next((each for each in changes if each.id == change.id and not each.white_box), None)
        if own is not None and lens.reader.failures is not None:
            return lens, options, own
    return None


def _weakest(lens: Lens, options: LensOptions, rows: pa.Table, size: tuple[int, int]) -> list[float] | None:
    """Return the parameters of the weakest failure in rows of one image."""
    failures = lens.reader.failures
    assert failures is not None
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        connection.execute(
            "create temp table clean as select distinct model, image, true as correct, $height as height, $width as width "
            "from rows",
            {"height": size[0], "width": size[1]},
        )
        found = connection.execute(
            f"select parameters from ({failures.query(options.model_dump())}) as failed({', '.join(FAILURE_COLUMNS)}) "
            "order by intensity limit 1"
        ).fetchone()
    return None if found is None else [float(value) for value in found[0]]
