"""Tables of a run: Parquet files that name the run they belong to, and show when they are damaged; and their DuckDB tables.

The metadata of a file holds `checksum`, that of the whole file with zeros in its place; `run`, the digest of the run's
identity; and `files`, the digests of other files that its rows refer to; of a sampled unit also `share`, the share of its
queries that were made. Each page of a column has a checksum, too, which is all that files of earlier versions have.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import duckdb

from brinell.runs.schema import Schema, empty_sql

if TYPE_CHECKING:
    import pyarrow as pa  # imported where it is needed: a summary is read without

_RUN, _FILES, _SHARE, _CHECKSUM = b"run", b"files", b"share", b"checksum"
_MARK, _UNKNOWN = b"brinell:blake2b:", b"0" * 16  # how a checksum begins in a file, and what stands in its place


def pack(table: pa.Table, run: str | None) -> bytes:
    """Return a table as a Parquet file of a run."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    repeating = [field.name for field in table.schema if not pa.types.is_list(field.type)]  # boxes hardly ever do
    metadata = {**(table.schema.metadata or {}), **({} if run is None else {_RUN: run.encode()})}
    pq.write_table(
        table.replace_schema_metadata({**metadata, _CHECKSUM: _MARK + _UNKNOWN}),
        sink,
        compression="zstd",
        use_dictionary=repeating,
        write_page_checksum=True,
    )
    before, after = _around_checksum(sink.getvalue().to_pybytes())
    return before + digest(before + _UNKNOWN + after).encode() + after


def _around_checksum(data: bytes) -> tuple[bytes, bytes]:
    """Return what is before the checksum of a file and what is after it; all and nothing if it has none."""
    start = data.rfind(_MARK)
    end = start + len(_MARK)
    return (data, b"") if start < 0 else (data[:end], data[end + len(_UNKNOWN) :])


def read_parquet(data: bytes) -> pa.Table:
    """Return the table of a Parquet file, and raise ValueError if it is damaged."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    before, after = _around_checksum(data)
    if before != data and data != before + digest(before + _UNKNOWN + after).encode() + after:
        raise ValueError("not the file that was written: its checksum differs")
    try:  # read_table imports more than it reads
        table = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True).read()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"not a Parquet file, or a damaged one: {error}") from error
    if before == data and _CHECKSUM in (table.schema.metadata or {}):
        raise ValueError("not the file that was written: its checksum can't be read")
    return table


def run_of(metadata: Mapping[bytes, bytes] | None) -> str | None:
    """Return the run that a file belongs to; None if it doesn't say."""
    run = (metadata or {}).get(_RUN)
    return None if run is None else run.decode()


def with_files(table: pa.Table, files: Mapping[str, bytes]) -> pa.Table:
    """Return a table that holds the digests of the files that its rows refer to, by their paths in the run's folder."""
    known = {**files_of(table.schema.metadata), **{name: digest(content) for name, content in files.items()}}
    metadata = {**(table.schema.metadata or {}), _FILES: json.dumps(known, sort_keys=True).encode()}
    return table.replace_schema_metadata(metadata)


def files_of(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    """Return the digests of the files that rows refer to, by their paths in the run's folder."""
    found: dict[str, str] = json.loads((metadata or {}).get(_FILES, b"{}"))
    return found


def with_share(table: pa.Table, share: float) -> pa.Table:
    """Return a table that says which share of a unit's queries its rows are; all of them needn't be said."""
    metadata = {key: value for key, value in (table.schema.metadata or {}).items() if key != _SHARE}
    if share < 1:
        metadata[_SHARE] = repr(share).encode()
    return table.replace_schema_metadata(metadata or None)


def read_share(opened: Any) -> float:
    """Return which share of a unit's queries an opened Parquet file holds; 1 if it is damaged, which is found out later."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return float((pq.read_schema(opened).metadata or {}).get(_SHARE, b"1"))
    except (pa.ArrowException, OSError):
        return 1.0


def digest(content: Any) -> str:
    """Return 16 hex digits of a hash of a file's content."""
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def read_into(connection: duckdb.DuckDBPyConnection, table: str, schema: Schema, files: list[str]) -> None:
    """Read Parquet files into a table."""
    create_table(connection, table, schema, "from read_parquet($files, union_by_name = true)", {"files": files})


def create_table(
    connection: duckdb.DuckDBPyConnection, table: str, schema: Schema, sql: str = "", given: dict[str, Any] | None = None
) -> None:
    """Make a table of what a query returns; columns of a schema that it lacks are null."""
    parts = [part for part in (empty_sql(schema) if schema else "", sql) if part]
    connection.execute(f'create table "{table}" as {" union all by name ".join(parts)}', given)
