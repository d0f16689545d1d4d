"""Which files of a run are damaged, or belong to another run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import duckdb

from brinell.errors import DamagedFile, RunError
from brinell.runs.schema import Unit
from brinell.runs.store import Store, unit_file
from brinell.runs.tables import digest, files_of, read_parquet, run_of

if TYPE_CHECKING:
    import pyarrow as pa

CHECKSUMS = "checksums.json"  # of pictures and their lists
DAMAGED, FOREIGN = "is damaged", "belongs to another run"


def damaged_units(store: Store, units: Iterable[Unit]) -> dict[Unit, str]:
    """Return which of some measured units can't be used, with the reason. Object stores keep files whole themselves."""
    if not store.is_local:
        return {}
    found = ((unit, rows_problem(store, *unit_file(unit))) for unit in units)
    return {unit: problem for unit, problem in found if problem is not None}


def rows_problem(store: Store, *parts: str) -> str | None:
    """Return what is wrong with a file of rows, or with a file that they refer to; None if nothing is."""
    place = store.place(*parts)
    try:
        metadata = read_parquet(store.read(*parts)).schema.metadata
    except (ValueError, RunError):
        return f"{place} {DAMAGED}"
    if run_of(metadata) not in (None, store.run):
        return f"{place} {FOREIGN}"
    return _first_problem(store, files_of(metadata))


def read_table(store: Store, name: str) -> tuple[pa.Table | None, str | None]:
    """Return a table of the run and None, or None and what is wrong with it (None as well: there is no such table)."""
    if not store.exists(f"{name}.parquet"):
        return None, None
    try:
        table = store.table(name)
    except DamagedFile as damaged:
        return None, f"{damaged.place} {DAMAGED}"
    if run_of(table.schema.metadata) not in (None, store.run):
        return None, f"{store.place(f'{name}.parquet')} {FOREIGN}"
    return table, None


def write_checksums(store: Store, written: Mapping[str, str]) -> None:
    """Store the digests of files that were written, such as pictures."""
    store.write(json.dumps(dict(written)).encode(), CHECKSUMS)


def file_problem(store: Store) -> str | None:
    """Return what is wrong with the first damaged file among those with a stored digest; None if nothing is."""
    if not store.exists(CHECKSUMS):
        return None
    try:
        expected = store.read_json(CHECKSUMS)
    except DamagedFile as damaged:
        return f"{damaged.place} {DAMAGED}"
    return _first_problem(store, expected)


def rows_problems(store: Store) -> Iterator[str]:
    """Yield what is wrong with the files of rows, and with those that they refer to."""
    depth = len(store.path("").split("/")) - 1
    problems = (rows_problem(store, *file.split("/")[depth:]) for file in store.unit_files())
    return (problem for problem in problems if problem is not None)


def foreign_rows(connection: duckdb.DuckDBPyConnection, store: Store, run: str) -> str | None:
    """Return a local file of rows that belongs to another run than the one with this digest; None if there is none."""
    files = store.unit_files() if store.is_local else []
    if not files:
        return None
    sql = "select file_name from parquet_kv_metadata($files) where decode(key) = 'run' and decode(value) <> $run limit 1"
    found = connection.execute(sql, {"files": files, "run": run}).fetchone()
    return None if found is None else str(found[0])


def _first_problem(store: Store, expected: Mapping[str, str]) -> str | None:
    """Return what is wrong with the first of some files that is missing or has another digest."""
    for name, known in expected.items():
        try:
            content = store.read(*name.split("/"))
        except RunError:
            return f"{store.place(name)} is missing"
        if digest(content) != known:
            return f"{store.place(name)} {DAMAGED}"
    return None
