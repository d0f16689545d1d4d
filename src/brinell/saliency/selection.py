"""Which changed images are compared: rows of any lens, for one model and operator.

Of the images that the model gets right when clean, up to a number that fail and as many that don't.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from brinell.draws import permutation
from brinell.lenses.reader import Reader
from brinell.runs.run import Run

IMAGES_AT_ONCE = 64
Rows = dict[str, np.ndarray]  # by column: image, clean_image, label, prediction, failed, parameters, level, field
_CHANGED = """
    with known as (
        select model, image, bool_or(clean.correct) as is_right from clean join samples using (index) group by all),
    pairs as (  -- what an image is compared with: itself before the change, or the original that it is a variant of
        select own.image, any_value({before}.image) as clean_image
        from samples own left join samples base
             on base.original = own.original and base.variant is null and own.variant is not null
        where own.image is not null group by all)
    select rows.image, pairs.clean_image, rows.label, rows.prediction::double as prediction,
           coalesce(not rows.correct, true) as failed, {parameters} as parameters, rows.level::double as level,
           ({field})::double as field
    from rows join pairs using (image) join known on known.model = rows.model and known.image = pairs.clean_image
    where lens = $lens and rows.model = $model and operator = $operator and is_right and {changed}
    order by all
"""


def list_operators(run: Run, lens: str, model: str) -> list[str]:
    """Return the operators of a lens that have rows for a model."""
    sql = "select distinct operator from rows where lens = $lens and model = $model order by all"
    return [operator for (operator,) in run.query(sql, {"lens": lens, "model": model})]


def select_rows(run: Run, reader: Reader, *, lens: str, model: str, operator: str, most: int) -> Rows:
    """Return at most `most` rows that fail and as many that don't, in an order that the run's seed determines."""
    sql = _CHANGED.format(
        before="base" if reader.compare_with_original else "own",
        parameters=reader.parameters,
        field=reader.field(run.lens(lens)),
        changed=reader.changed,
    )
    given = {"lens": lens, "model": model, "operator": operator}
    columns = run.connection.execute(sql, given).fetchnumpy()
    rows = {name: _fill(values) for name, values in columns.items()}
    failed = rows["failed"].astype(bool)
    kept = []
    for kind in (failed, ~failed):
        indices = np.flatnonzero(kind)
        kept.append(indices[permutation(len(indices), run.seed)[:most]])
    order = np.sort(np.concatenate(kept))  # by image
    return {name: values[order] for name, values in rows.items()}


def take(rows: Rows, indices: Any) -> Rows:
    """Return some of the rows."""
    return {name: values[indices] for name, values in rows.items()}


def group_by_images(rows: Rows) -> Iterable[np.ndarray]:
    """Return the indices of rows, as many together as belong to `IMAGES_AT_ONCE` images."""
    if not len(rows["image"]):
        return []
    _, number = np.unique(rows["image"], return_inverse=True)
    return [
        indices
        for first in range(0, int(number.max()) + 1, IMAGES_AT_ONCE)
        if len(indices := np.flatnonzero((number >= first) & (number < first + IMAGES_AT_ONCE)))
    ]


def _fill(values: Any) -> np.ndarray:
    """Return a column with NaN where it is null."""
    if isinstance(values, np.ma.MaskedArray):
        values = np.ma.filled(values.astype(np.float64), np.nan) if np.ma.is_masked(values) else values.data
    return np.asarray(values)
