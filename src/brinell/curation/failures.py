"""From the rows of runs to the failures that are taken: filters, how many models fail, and the least changed image.

Two rows are of the same replay if an image was changed by the same operator, parameters and random draws. Models may see
a replay at different input sizes; a failure is a replay on one model input, with the models that fail on it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import pyarrow as pa

from brinell.curation.options import CurateOptions
from brinell.curation.runs import RunModel, SourceRun, failures_of
from brinell.engine.replay import Replay
from brinell.errors import ConfigError, RunError
from brinell.lenses.lens import LENSES
from brinell.lenses.reader import FAILURE_COLUMNS
from brinell.models.preprocess import Preprocess
from brinell.registry import VariantId, nearest
from brinell.runs.schema import DISTANCES


@dataclass(frozen=True)
class WrongAnswer:
    """A model's answer to a failure: from the rows, or `queried` now."""

    model: RunModel
    label: int
    prediction: int
    confidence: float | None
    probability: float | None
    queried: bool


@dataclass(frozen=True)
class Failure:
    """A changed image at one input size, and the answers of the models that fail on it.

    `key` identifies the replay; `fails` counts the models that fail on it at any input size.
    """

    key: str
    lens: str
    source: SourceRun
    replay: Replay
    seed: int
    direction: str | None
    intensity: float
    amount: float | None
    distances: dict[str, float | None]
    answers: tuple[WrongAnswer, ...]
    fails: int

    @property
    def counterpart(self) -> Replay | None:
        """The similar image that the model gets right, if failures of this lens come in pairs."""
        failures = failures_of(self.lens)
        if failures is None or not failures.pairs:
            return None
        own = self.replay.parameters
        return replace(self.replay, parameters=own[len(own) // 2 :])

    @property
    def model(self) -> RunModel:
        """The first model that fails."""
        return self.answers[0].model

    @property
    def model_input(self) -> Preprocess:
        """How the original gets its size."""
        return self.model.model_input


Measured = list[tuple[SourceRun, str, str]]  # a run, a lens and an operator


def gather(
    connection: duckdb.DuckDBPyConnection,
    sources: Sequence[SourceRun],
    models: Sequence[RunModel],
    options: CurateOptions,
) -> None:
    """Create the table `broken` of all failures of the chosen lens and operators."""
    measured = _select_operators(_list_measured(connection, sources, options), options.operators)
    connection.register("models", _models_table(models))
    connection.register("changes", _changes_table(measured, models))
    parts = [
        f"select {source.number} as source, '{lens}' as lens, * from "
        f"(with rows as (select * from rows_{source.number}), clean as (select * from clean_{source.number}) "
        f"{query_of(source, lens)}) as found({', '.join(FAILURE_COLUMNS)})"
        for source, lens in dict.fromkeys((source, lens) for source, lens, _ in measured)
    ]
    # a model that has the same replay in two runs counts once
    connection.execute(f"""
        create temp table broken as
        select *, false as queried,
               concat_ws('|', lens, operator, image, parameters, field, seed, case when white_box then owner end) as replay
        from ({" union all ".join(parts)}) join models using (source, model) join changes using (source, lens, operator)
        qualify row_number() over (partition by replay, owner order by source, label) = 1
    """)
    if not count_rows(connection, "broken"):
        where = ", ".join(source.url for source in sources)
        raise RunError(
            f"there are no failures in {where}: no change breaks an image that a model gets right; "
            "run more operators or levels"
        )


def query_of(source: SourceRun, lens: str) -> str:
    """Return the SQL of a lens's failures in a run."""
    failures = failures_of(lens)
    assert failures is not None
    return failures.query(source.options(lens))


def _list_measured(connection: duckdb.DuckDBPyConnection, sources: Sequence[SourceRun], options: CurateOptions) -> Measured:
    """Return what was measured by lenses that have failures."""
    lenses = list(dict.fromkeys(lens for source in sources for lens in source.run.lenses))
    if options.lens is not None and options.lens not in lenses:
        raise ConfigError(f"no lens {options.lens!r} is in these runs; {nearest(options.lens, lenses)}")
    wanted = [lens for lens in lenses if failures_of(lens) is not None and options.lens in (None, lens)]
    found = []
    for source in sources:
        rows = connection.execute(f"select distinct lens, operator from rows_{source.number} order by all").fetchall()
        found += [(source, lens, operator) for lens, operator in rows if lens in wanted]
    if not found:
        known = ", ".join(lens for lens in LENSES if failures_of(lens) is not None)
        raise RunError(f"these runs have no rows of a lens with failures ({known})")
    return found


def _select_operators(measured: Measured, names: Sequence[str]) -> Measured:
    """Return what was measured by the named operators (NAME or NAME:VARIANT); without names, everything."""
    for name in names:
        if not any(name in (operator, VariantId.parse(operator).name) for *_, operator in measured):
            plain = sorted({VariantId.parse(operator).name for *_, operator in measured})
            raise ConfigError(f"no operator {name!r} is in these runs; {nearest(name, plain)}")
    return [one for one in measured if not names or {one[2], VariantId.parse(one[2]).name} & set(names)]


def _models_table(models: Sequence[RunModel]) -> pa.Table:
    inputs = list(dict.fromkeys(model.model_input for model in models))
    columns = [(model.run, model.own, model.name, inputs.index(model.model_input)) for model in models]
    return pa.table(list(map(pa.array, zip(*columns, strict=True))), names=["source", "model", "owner", "model_input"])


def _changes_table(measured: Measured, models: Sequence[RunModel]) -> pa.Table:
    """Return what a replay depends on besides its parameters: the seed of random changes, the model of attacks; and whether
    rows have the answers to it.
    """
    rows = []
    for source, lens, operator in measured:
        change = source.change(lens, operator, models[0].preprocess)
        seed = source.seed if change.stochastic else None
        answered = source.has_answers(lens, operator, models[0].preprocess)
        rows.append((source.number, lens, operator, seed, change.white_box, answered))
    kinds = (pa.int64(), pa.string(), pa.string(), pa.int64(), pa.bool_(), pa.bool_())
    arrays = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    return pa.table(arrays, names=["source", "lens", "operator", "seed", "white_box", "answered"])


def filter_failures(connection: duckdb.DuckDBPyConnection, options: CurateOptions) -> None:
    """Create the table `failures` of those within the distances and with a large enough margin."""
    distance = options.distance
    low = 0.0 if options.min_distance is None else options.min_distance
    high = float("inf") if options.max_distance is None else options.max_distance
    limited = options.min_distance is not None or options.max_distance is not None
    near = f"{distance} between $low and $high" if limited else "true"
    given = {"low": low, "high": high} if limited else {}
    connection.execute(f"create temp table failures as select * from broken where {near}", given)
    if not count_rows(connection, "failures"):
        least, most = connection.execute(f"select min({distance}), max({distance}) from broken").fetchone() or (None, None)
        raise RunError(
            f"no failures left: none of {count_rows(connection, 'broken'):,} has a distance ({distance}) between {low:g} "
            f"and {high:g}; they range from {_format(least)} to {_format(most)}"
        )
    drop_small_margins(connection, options)


def drop_small_margins(connection: duckdb.DuckDBPyConnection, options: CurateOptions) -> None:
    """Delete the failures whose margin is too small."""
    if options.margin is None:
        return
    before = count_rows(connection, "failures")
    (most,) = connection.execute("select max(confidence - probability) from failures").fetchone() or (None,)
    connection.execute(
        "delete from failures where coalesce(confidence - probability < $margin, true)", {"margin": options.margin}
    )
    if not count_rows(connection, "failures"):
        raise RunError(
            f"no failures left: none of {before:,} has a margin of {options.margin:g}; the largest is {_format(most)}"
        )


def required_failures(options: CurateOptions, models: Sequence[RunModel]) -> int:
    """Return how many models have to fail."""
    names = list(dict.fromkeys(model.name for model in models))
    if isinstance(options.fail, int) and options.fail > len(names):
        raise ConfigError(f"{options.fail} models should fail, but the runs have {len(names)}: {', '.join(names)}")
    return options.fail if isinstance(options.fail, int) else {"any": 1, "all": len(names)}[options.fail]


_LEAST = """
    with replays as (
        select replay, count(distinct owner) as fails, min({distance}) as least, min(intensity) as how
        from failures group by replay having fails >= $fail)
    select * from failures join replays using (replay)
    qualify dense_rank() over (partition by lens, operator, image {each} order by least nulls last, how, replay) <= $most
    order by lens, operator, image, replay, model_input, owner
"""


def choose_failures(
    connection: duckdb.DuckDBPyConnection,
    sources: Sequence[SourceRun],
    models: Sequence[RunModel],
    options: CurateOptions,
    fail: int,
) -> list[Failure]:
    """Return the failures that are taken, by operator and image; in the paper's layout, one per model."""
    each = options.layout == "paper"
    sql = _LEAST.format(distance=options.distance, each=", owner" if each else "")
    found = connection.execute(sql, {"fail": fail, "most": 2**60 if options.every else 1})
    by_name = {(model.run, model.name): model for model in models}
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    columns = [column[0] for column in found.description or ()]
    while rows := found.fetchmany(10_000):
        for values in rows:
            row = dict(zip(columns, values, strict=True))
            groups.setdefault((row["replay"], row["model_input"], row["owner"] if each else ""), []).append(row)
    if not groups:
        many = f"all {fail}" if options.fail == "all" else f"at least {fail}"
        raise RunError(
            f"no failures left: among {count_rows(connection, 'failures'):,}, {many} models never fail on the same changed "
            "image; require fewer with --fail"
        )
    return [_failure(rows, sources, by_name) for rows in groups.values()]


def _failure(rows: list[dict[str, Any]], sources: Sequence[SourceRun], models: dict[tuple[int, str], RunModel]) -> Failure:
    first = rows[0]
    source, model = sources[first["source"]], models[first["source"], first["owner"]]
    change = source.change(first["lens"], first["operator"], model.preprocess)
    return Failure(
        key=first["replay"],
        lens=first["lens"],
        source=source,
        replay=Replay(first["image"], change, tuple(first["parameters"]), first["field"]),
        seed=source.seed if first["seed"] is None else first["seed"],
        direction=first["direction"],
        intensity=first["intensity"],
        amount=first["amount"],
        distances={name: _known_distance(first[name]) for name in DISTANCES},
        answers=tuple(
            WrongAnswer(
                model=models[row["source"], row["owner"]],
                label=row["label"],
                prediction=row["prediction"],
                confidence=row["confidence"],
                probability=row["probability"],
                queried=row["queried"],
            )
            for row in rows
        ),
        fails=first["fails"],
    )


def _known_distance(value: float | None) -> float | None:
    """Return a distance; None if the change shows another part of the scene."""
    return None if value is None or math.isnan(value) else value


def count_rows(connection: duckdb.DuckDBPyConnection, table: str) -> int:
    """Return the number of rows of a table."""
    (count,) = connection.execute(f"select count(*) from {table}").fetchone() or (0,)
    return int(count)


def _format(value: float | None) -> str:
    return "none" if value is None else f"{value:.3g}"
