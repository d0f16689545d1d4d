"""What two runs under different budgets have in common: the cells that both queried."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from brinell.lenses.lens import LENSES
from brinell.runs.run import Run

_SAMPLED = "select lens, operator from rows group by all having count(inclusion) > 0"


def share_cells(one: Run, other: Run) -> tuple[Run, Run]:
    """Return two runs with the cells that both queried: the larger one is opened again, with the cells of the smaller."""
    if one.share == other.share or one.seed != other.seed:
        return one, other
    if one.share < other.share:
        return one, take_cells(other, one)
    return take_cells(one, other), other


def share_smallest(runs: Sequence[Run]) -> list[Run]:
    """Return runs with the cells that all of them queried, as far as they have a lens in common."""
    shared = []
    for run in runs:
        others = [
            one for one in runs if one.share < run.share and one.seed == run.seed and set(one.lenses) & set(run.lenses)
        ]
        shared.append(take_cells(run, min(others, key=lambda one: one.share)) if others else run)
    return shared


def describe_sampled(one: Run, other: Run) -> list[str]:
    """Return what two runs are compared at, if a budget left queries out of them."""
    share = min(one.share, other.share)
    if share == 1:
        return []
    return [
        f"compared at the {100 * share:.3g}% of the queries that both runs made under their budgets",
        "failure points of a sample are smoothed, and not compared; `brinell summary` prints each run's",
    ]


def take_cells(run: Run, smaller: Run) -> Run:
    """Return a run with those of its rows that a smaller budget chose, with their probabilities."""
    restricted = type(run)(run.store)
    connection = restricted.connection
    chosen: list[str] = []
    for lens, operator in smaller.query(_SAMPLED):
        keys = ["lens", "operator", "image", *_cell_columns(lens, operator)]
        names = ", ".join(keys)
        where = "lens = $lens and operator = $operator"
        sql = f"select {names}, max(inclusion) as chance from rows where {where} group by all"
        found = smaller.connection.sql(sql, params={"lens": lens, "operator": operator}).arrow()
        connection.register(f"chosen_{len(chosen)}", found if isinstance(found, pa.Table) else found.read_all())
        match = " and ".join(f"rows.{key} is not distinct from chosen.{key}" for key in keys)
        chosen.append(
            f"select rows.* replace (chosen.chance as inclusion) from rows join chosen_{len(chosen)} as chosen on {match}"
        )
    if chosen:
        sampled = ", ".join(f"('{lens}', '{operator}')" for lens, operator in smaller.query(_SAMPLED))
        others = f"select * from rows where (lens, operator) not in ({sampled})"
        connection.execute(f"create temp table common as {' union all by name '.join([others, *chosen])}")
        connection.execute("create or replace temp view rows as from common")
    return restricted


def _cell_columns(lens: str, operator: str) -> list[str]:
    """Return the columns that name a cell of an image; none where a budget chooses images."""
    reader = LENSES[lens].reader
    if reader.cells(operator) is None:
        return []
    return [name for name in reader.order if name not in ("image", "changed")]
