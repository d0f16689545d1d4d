"""The rows of some units of a run in DuckDB, and when files were written. Files of runs at URLs are local copies."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from brinell.runs.run import Run
from brinell.runs.schema import ROWS
from brinell.runs.store import Store
from brinell.viewer.remote import MirroredStore


def written_at(store: Store, path: str) -> float | None:
    """Return when a file of a run was written, in seconds since 1970; None if it is at a URL that doesn't say."""
    return store.times.get(path) if isinstance(store, MirroredStore) else Path(path).stat().st_mtime


def operator_files(run: Run, lens: str, operator: str, model: str | None = None) -> list[str]:
    """Return the files with the rows of an operator, of all models or of one."""
    owner = None if model is None else quote(model, safe="")
    wanted = quote(lens, safe=""), quote(operator, safe="")
    found = ((file, file.rsplit("/", 4)[1:]) for file in run.store.unit_files())
    return [file for file, (one, who, name, _) in found if (one, name) == wanted and owner in (None, who)]


def connect(run: Run, files: list[str], positions: pa.Table | None = None) -> duckdb.DuckDBPyConnection:
    """Return a connection with the tables `rows` (of some files, with `shard`) and `clean`, as failures expect them."""
    connection = connect_rows(run, files)
    connection.register("clean_answers", run.store.table("clean"))
    connection.register("samples", run.store.table("samples"))
    connection.execute(
        "create temp table clean as select model, image, correct, height, width "
        "from clean_answers join samples using (index)"
    )
    if positions is not None:
        connection.register("positions", positions)
    return connection


def connect_rows(run: Run, files: list[str]) -> duckdb.DuckDBPyConnection:
    """Return a connection with the rows of some files, and their `shard`, alone."""
    connection = duckdb.connect()
    connection.execute("set preserve_insertion_order = false")
    listed = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
    known = {name for file in files[:1] for name in pq.read_schema(file).names}
    missing = "".join(f", null as {name}" for name in ROWS if name not in known)  # columns newer than the run
    connection.execute(
        f"create temp view rows as select * exclude (filename), parse_filename(filename, true)::int as shard{missing} "
        f"from read_parquet([{listed}], union_by_name = true, filename = true)"
    )
    return connection
