"""From the rows of runs to the versions that are taken: filters, how many models fail, and the least of each image.

Two failures are of one version if what is done to the image is the same, by the same numbers, with the same draws. Each
model sees it on its own model input; a picture is a version on one model input.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import pyarrow as pa

from brinell.curation.options import CurateOptions
from brinell.curation.sources import Asked, Source, failures_of
from brinell.engine.replay import Replay
from brinell.errors import ConfigError, RunError
from brinell.lenses.lens import LENSES
from brinell.lenses.reader import FAILURE_COLUMNS
from brinell.registry import nearest
from brinell.runs.schema import DISTANCES


@dataclass(frozen=True)
class Failure:
    """One model that fails on a version: what it said, and whether that was `asked` now or stood in the rows."""

    model: Asked
    label: int
    prediction: int
    confidence: float | None
    probability: float | None
    asked: bool


@dataclass(frozen=True)
class Picture:
    """A version on one model input, by whose `distances` it is measured, and the models that fail on it.

    `key` names the version; `fails` is how many models fail on it, whichever model input they see it on.
    """

    key: str
    lens: str
    source: Source
    replay: Replay
    seed: int
    direction: str | None
    intensity: float
    amount: float | None
    distances: dict[str, float | None]
    failures: tuple[Failure, ...]
    fails: int

    @property
    def before(self) -> Replay | None:
        """What is right beside the failure, in a pair."""
        failures = failures_of(self.lens)
        if failures is None or not failures.pairs:
            return None
        own = self.replay.parameters
        return replace(self.replay, parameters=own[len(own) // 2 :])

    @property
    def model_input(self) -> Any:
        """How the original gets its size."""
        return self.failures[0].model.model_input


Measured = list[tuple[Source, str, str]]  # a run, a lens and an operator


def gather(
    connection: duckdb.DuckDBPyConnection, sources: Sequence[Source], models: Sequence[Asked], options: CurateOptions
) -> None:
    """Make the table `broken` of all failures that the lens and operators allow."""
    measured = _of_operators(_measured(connection, sources, options), options.operators)
    connection.register("models", _models(models))
    connection.register("changes", _changes(measured, models))
    parts = [
        f"select {source.number} as source, '{lens}' as lens, * from "
        f"(with rows as (select * from rows_{source.number}), clean as (select * from clean_{source.number}) "
        f"{query_of(source, lens)}) as found({', '.join(FAILURE_COLUMNS)})"
        for source, lens in dict.fromkeys((source, lens) for source, lens, _ in measured)
    ]
    # a model that was asked the same in two runs counts once
    connection.execute(f"""
        create temp table broken as
        select *, false as asked,
               concat_ws('|', lens, operator, image, parameters, field, seed, case when white_box then owner end) as version
        from ({" union all ".join(parts)}) join models using (source, model) join changes using (source, lens, operator)
        qualify row_number() over (partition by version, owner order by source, label) = 1
    """)
    if not count(connection, "broken"):
        where = ", ".join(source.url for source in sources)
        raise RunError(
            f"there are no failures in {where}: no image that a model gets right was lost; run more operators or levels"
        )


def query_of(source: Source, lens: str) -> str:
    """Return the SQL of a lens's failures in a run."""
    failures = failures_of(lens)
    assert failures is not None
    return failures.query(source.options(lens))


def _measured(connection: duckdb.DuckDBPyConnection, sources: Sequence[Source], options: CurateOptions) -> Measured:
    """What was measured, by lenses that have failures."""
    lenses = list(dict.fromkeys(lens for source in sources for lens in source.run.lenses))
    if options.lens is not None and options.lens not in lenses:
        raise ConfigError(f"no lens {options.lens!r} is in these runs; {nearest(options.lens, lenses)}")
    wanted = [lens for lens in lenses if failures_of(lens) is not None and options.lens in (None, lens)]
    found = []
    for source in sources:
        asked = connection.execute(f"select distinct lens, operator from rows_{source.number} order by all").fetchall()
        found += [(source, lens, operator) for lens, operator in asked if lens in wanted]
    if not found:
        known = ", ".join(lens for lens in LENSES if failures_of(lens) is not None)
        raise RunError(f"these runs have no rows of a lens with failures ({known})")
    return found


def _of_operators(measured: Measured, asked: Sequence[str]) -> Measured:
    """Those of the operators that are asked for, by name or name:variant."""
    for name in asked:
        if not any(name in (operator, operator.partition(":")[0]) for *_, operator in measured):
            plain = sorted({operator.partition(":")[0] for *_, operator in measured})
            raise ConfigError(f"no operator {name!r} is in these runs; {nearest(name, plain)}")
    return [one for one in measured if not asked or {one[2], one[2].partition(":")[0]} & set(asked)]


def _models(models: Sequence[Asked]) -> pa.Table:
    inputs = list(dict.fromkeys(model.model_input for model in models))
    columns = [(model.source, model.own, model.name, inputs.index(model.model_input)) for model in models]
    return pa.table(list(map(pa.array, zip(*columns, strict=True))), names=["source", "model", "owner", "model_input"])


def _changes(measured: Measured, models: Sequence[Asked]) -> pa.Table:
    """What a version depends on besides its numbers: the seed of random changes, the model of attacks."""
    rows = []
    for source, lens, operator in measured:
        change = source.change(lens, operator, models[0].preprocess)
        seed = source.seed if change.stochastic else None
        rows.append((source.number, lens, operator, seed, change.white_box))
    kinds = (pa.int64(), pa.string(), pa.string(), pa.int64(), pa.bool_())
    arrays = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    return pa.table(arrays, names=["source", "lens", "operator", "seed", "white_box"])


def narrow(connection: duckdb.DuckDBPyConnection, options: CurateOptions) -> None:
    """Make the table `failures` of those that are near and sure enough."""
    distance = options.distance
    low = 0.0 if options.min_distance is None else options.min_distance
    high = float("inf") if options.max_distance is None else options.max_distance
    asked = options.min_distance is not None or options.max_distance is not None
    near = f"{distance} between $low and $high" if asked else "true"
    given = {"low": low, "high": high} if asked else {}
    connection.execute(f"create temp table failures as select * from broken where {near}", given)
    if not count(connection, "failures"):
        least, most = connection.execute(f"select min({distance}), max({distance}) from broken").fetchone() or (None, None)
        raise RunError(
            f"no failure is left: of {count(connection, 'broken'):,} none has a distance ({distance}) from {low:g} to "
            f"{high:g}; they have {_told(least)} to {_told(most)}"
        )
    drop_unsure(connection, options)


def drop_unsure(connection: duckdb.DuckDBPyConnection, options: CurateOptions) -> None:
    """Leave out the failures whose margin is too small."""
    if options.margin is None:
        return
    before = count(connection, "failures")
    (most,) = connection.execute("select max(confidence - probability) from failures").fetchone() or (None,)
    connection.execute(
        "delete from failures where coalesce(confidence - probability < $margin, true)", {"margin": options.margin}
    )
    if not count(connection, "failures"):
        raise RunError(
            f"no failure is left: of {before:,} none has a margin of {options.margin:g}; the largest is {_told(most)}"
        )


def needed(options: CurateOptions, models: Sequence[Asked]) -> int:
    """How many models have to fail."""
    names = list(dict.fromkeys(model.name for model in models))
    if isinstance(options.fail, int) and options.fail > len(names):
        raise ConfigError(f"{options.fail} models should fail, but the runs have {len(names)}: {', '.join(names)}")
    return options.fail if isinstance(options.fail, int) else {"any": 1, "all": len(names)}[options.fail]


_LEAST = """
    with versions as (
        select version, count(distinct owner) as fails, min({distance}) as least, min(intensity) as how
        from failures group by version having fails >= $fail)
    select * from failures join versions using (version)
    qualify dense_rank() over (partition by lens, operator, image {each} order by least nulls last, how, version) <= $most
    order by lens, operator, image, version, model_input, owner
"""


def chosen(
    connection: duckdb.DuckDBPyConnection,
    sources: Sequence[Source],
    models: Sequence[Asked],
    options: CurateOptions,
    fail: int,
) -> list[Picture]:
    """The pictures that are taken, in the order of operators and images; in the paper's layout each model has its own."""
    each = options.layout == "paper"
    question = _LEAST.format(distance=options.distance, each=", owner" if each else "")
    answer = connection.execute(question, {"fail": fail, "most": 2**60 if options.every else 1})
    by_name = {(model.source, model.name): model for model in models}
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    columns = [column[0] for column in answer.description or ()]
    while rows := answer.fetchmany(10_000):
        for row in rows:
            told = dict(zip(columns, row, strict=True))
            groups.setdefault((told["version"], told["model_input"], told["owner"] if each else ""), []).append(told)
    if not groups:
        many = f"all {fail}" if options.fail == "all" else f"at least {fail}"
        raise RunError(
            f"no failure is left: of {count(connection, 'failures'):,} none is of a version on which {many} models fail; "
            "ask for fewer with --fail"
        )
    return [_picture(rows, sources, by_name) for rows in groups.values()]


def _picture(
    rows: list[dict[str, Any]],
    sources: Sequence[Source],
    models: dict[tuple[int, str], Asked],
) -> Picture:
    first = rows[0]
    source, model = sources[first["source"]], models[first["source"], first["owner"]]
    change = source.change(first["lens"], first["operator"], model.preprocess)
    return Picture(
        key=first["version"],
        lens=first["lens"],
        source=source,
        replay=Replay(first["image"], change, tuple(first["parameters"]), first["field"]),
        seed=source.seed if first["seed"] is None else first["seed"],
        direction=first["direction"],
        intensity=first["intensity"],
        amount=first["amount"],
        distances={name: _known(first[name]) for name in DISTANCES},
        failures=tuple(
            Failure(
                models[row["source"], row["owner"]],
                row["label"],
                row["prediction"],
                row["confidence"],
                row["probability"],
                row["asked"],
            )
            for row in rows
        ),
        fails=first["fails"],
    )


def _known(value: float | None) -> float | None:
    """A distance; None where a view shows something else, and there is none."""
    return None if value is None or math.isnan(value) else value


def count(connection: duckdb.DuckDBPyConnection, table: str) -> int:
    """How many rows a table has."""
    (count,) = connection.execute(f"select count(*) from {table}").fetchone() or (0,)
    return int(count)


def _told(value: float | None) -> str:
    return "none" if value is None else f"{value:.3g}"
