"""Measures some images of a run again, and compares with the rows that it stored."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from brinell.engine.context import RunContext
from brinell.engine.measuring import SCORES, make_evaluator
from brinell.engine.rows import rows_table
from brinell.engine.setup import jobs_of
from brinell.engine.shards import Entry, load_images
from brinell.engine.truth.objects import Truth
from brinell.lenses.sampling import Sampling
from brinell.runs.arrow import arrow_schema
from brinell.runs.run import Run
from brinell.runs.schema import ROWS, Unit

# what depends on the machine, or on the other images of a unit
IGNORED = frozenset({"queries", "seconds", "inclusion", "detected_boxes", "detected_labels", "detected_scores"})
CLOSE = 1e-3  # difference of numbers, relative to the larger one, that is called rounding


def remeasure(
    context: RunContext, run: Run, clean: pa.Table, job: tuple[str, str, str], entries: Sequence[Entry]
) -> tuple[int, list[str]]:
    """Return how many rows of a lens, model and operator were compared, and which of them differ, for people."""
    lens, model, operator = job
    one = next(each for each in jobs_of(context.setup) if (each.lens.name, each.model.name) == (lens, model))
    change = next(change for change in one.changes if change.id == operator)
    images = load_images(
        context.setup.dataset, entries, one.model.preprocess, context.pool, with_originals=one.method.with_originals
    )
    evaluator = make_evaluator(context, one, list(entries), images, Truth.of(clean), context.batch(one.model))
    sampling = _sampling(run) if one.lens.reader.cells(operator) is not None else None
    columns = evaluator.drive(one.method.measure(evaluator.shard(sampling), change, one.options))
    columns.pop("files", None)
    if not one.model.scores:
        columns = {name: column for name, column in columns.items() if name not in SCORES}
    schema = arrow_schema(ROWS, one.lens.reader.columns)
    again = rows_table(Unit(lens, model, operator, 0), entries, evaluator.labels.cpu(), columns, schema).to_pylist()
    stored = _stored(run, job, [entry.image for entry in entries])
    names = {entry.image: entry.name for entry in entries}
    pairs = _paired(stored, again)
    problems = [
        f"{lens}, {model}, {operator}, {names[old['image']]}: {difference}"
        for old, new in pairs
        if (difference := _difference(old, new)) is not None
    ]
    return len(pairs), problems


def _sampling(run: Run) -> Sampling | None:
    """Return which cells of each image a budget chose."""
    if not run.sampled:
        return None
    return Sampling(run.seed, max(run.share, run.manifest["budget"].get("cells", 0.0)))


def _stored(run: Run, job: tuple[str, str, str], images: list[str]) -> list[dict[str, Any]]:
    """Return the stored rows of images, in the order in which they were written."""
    rows = run.store.rows()
    chosen = pc.field("image").cast(pa.string()).isin(images)
    for column, value in zip(("lens", "model", "operator"), job, strict=True):
        chosen &= pc.field(column).cast(pa.string()) == value
    found = rows.filter(chosen) if isinstance(rows, pa.Table) else rows.to_table(filter=chosen)
    return list(found.to_pylist())


def _paired(
    stored: list[dict[str, Any]], again: list[dict[str, Any]]
) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Pair each stored row with the same row measured again: by image, level and direction, then by order."""
    counted: dict[Any, int] = {}
    found: dict[Any, dict[str, Any]] = {}
    for row in again:
        number = counted[_key(row)] = counted.get(_key(row), -1) + 1
        found[(*_key(row), number)] = row
    counted, pairs = {}, []
    for row in stored:
        number = counted[_key(row)] = counted.get(_key(row), -1) + 1
        pairs.append((row, found.get((*_key(row), number))))
    return pairs


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["image"], row["level"], row.get("direction")


def _difference(old: dict[str, Any], new: dict[str, Any] | None) -> str | None:
    """Return the first difference of two rows, for people; None if there is none but rounding."""
    if new is None:
        return "the row is not measured any more"
    for name in sorted(old.keys() & new.keys() - IGNORED):
        if not _same(old[name], new[name]):
            return f"{name} was {old[name]!r} and is now {new[name]!r}"
    return None


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return (math.isnan(left) and math.isnan(right)) or math.isclose(left, right, rel_tol=CLOSE, abs_tol=CLOSE)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)
