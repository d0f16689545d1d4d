"""A run's folder, local or at any fsspec URL. Files are written atomically.

manifest.json       what ran: config, versions, fingerprints
samples.parquet     the images, and which could not be read
clean.parquet       each model's answer on the clean images, and which images were kept
rows/LENS/MODEL/OPERATOR/SHARD.parquet    what was measured, one file per unit
precision.parquet   average precision of detectors, computed from the rows once
saliency.parquet    where the models look, on clean and on changed images; pictures in saliency/
gate.json           the rules that the run was last checked by, and their checks
exhibits/           pictures for people
LENS/               what a lens stores in addition to its rows, such as maps
unfinished/         outcomes of long units so far; removed when their rows are written
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import posixpath
import uuid
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import duckdb
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq

from brinell.errors import RunError
from brinell.runs.schema import CLEAN, ROWS, SAMPLES, Unit

GATE = "gate.json"
FORMAT = 1  # of a run's folder; others are refused with instructions
UNFINISHED = "unfinished"  # folder of the answers of long units so far
_SMALL = 32_000_000  # bytes of row files that are read into memory at once
_TABLES = {"samples": SAMPLES, "clean": CLEAN}


class Store:
    """Reads and writes one run's folder."""

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self.url = os.fspath(url)
        try:
            self.fs, path = fsspec.core.url_to_fs(self.url)
        except (ValueError, ImportError) as error:  # an unknown protocol, or one that needs a package
            raise RunError(f"can't open {self.url}: {error}") from None
        self.root = path.rstrip("/")

    def path(self, *parts: str) -> str:
        """Return a path inside the run's folder, for its file system."""
        return posixpath.join(self.root, *parts)

    @property
    def _is_local(self) -> bool:
        return "file" in self.fs.protocol

    def place(self, *parts: str) -> str:
        """Return a path inside the run's folder for people: a local path or a URL."""
        return self.path(*parts) if self._is_local else posixpath.join(self.url, *parts)

    def exists(self, *parts: str) -> bool:
        """Whether a file exists."""
        return bool(self.fs.exists(self.path(*parts)))

    # ---- bytes ----

    def read(self, *parts: str) -> bytes:
        """Return the content of a file."""
        try:
            data: bytes = self.fs.cat_file(self.path(*parts))
        except FileNotFoundError:
            raise RunError(f"{self.url} has no {'/'.join(parts)}; is it the folder of a brinell run?") from None
        return data

    def write(self, data: bytes, *parts: str) -> None:
        """Write a file atomically: under another name first, then renamed."""
        target = self.path(*parts)
        part = f"{target}.{uuid.uuid4().hex}.part"
        try:
            self.fs.makedirs(posixpath.dirname(target), exist_ok=True)
            self.fs.pipe_file(part, data)
            self.fs.mv(part, target)
        except OSError as error:
            self._drop(part)
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise RunError(
                    f"no space left to write {len(data) / 1e6:.1f} MB into {self.url}; nothing finished is lost: free some "
                    "space and give the same command again"
                ) from error
            raise RunError(f"can't write {target}: {error.strerror or error}") from error

    def _drop(self, path: str) -> None:
        with contextlib.suppress(OSError):
            self.fs.rm_file(path)

    def remove(self, *parts: str) -> None:
        """Remove a file or folder, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            self.fs.rm(self.path(*parts), recursive=True)

    # ---- manifest ----

    def manifest(self) -> dict[str, Any]:
        """Return the manifest, or raise if it is not that of a run of this format."""
        try:
            content: dict[str, Any] = json.loads(self.read("manifest.json"))
            content["identity"]
        except (ValueError, KeyError, TypeError):
            raise RunError(f"the manifest.json in {self.url} is not that of a brinell run; use another folder") from None
        if content.get("format") != FORMAT:
            version = content.get("versions", {}).get("brinell", "of that time")
            raise RunError(
                f"the run in {self.url} has format {content.get('format')!r}, and this version of brinell reads format "
                f"{FORMAT}; open it with brinell {version}, or run it again"
            )
        return content

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Replace the manifest."""
        self.write(json.dumps(manifest, indent=1, ensure_ascii=False).encode(), "manifest.json")

    # ---- tables ----

    def table(self, name: str) -> pa.Table:
        """Return a table other than the rows: samples, clean, precision or saliency."""
        return pq.ParquetFile(pa.BufferReader(self.read(f"{name}.parquet"))).read()  # read_table imports more than it reads

    def write_table(self, name: str, table: pa.Table) -> None:
        """Write a table other than the rows."""
        self.write(_packed(table), f"{name}.parquet")

    def write_unit(self, unit: Unit, table: pa.Table) -> None:
        """Write the rows of a finished unit."""
        self.write(_packed(table), *self._unit(unit))

    def missing(self, units: Iterable[Unit]) -> list[Unit]:
        """Return the units that have no rows yet."""
        done = set(self.unit_files())
        return [unit for unit in units if self.path(*self._unit(unit)) not in done]

    def unit_files(self) -> list[str]:
        """Return the files of all finished units."""
        try:
            found = self.fs.find(self.path("rows"))
        except FileNotFoundError:
            return []
        return sorted(path for path in found if path.endswith(".parquet"))

    def measured(self) -> bool:
        """Whether anything was measured: rows, or answers of a long unit that is not finished."""
        return bool(self.unit_files()) or self.exists(UNFINISHED)

    @staticmethod
    def _unit(unit: Unit) -> tuple[str, ...]:
        folders = (quote(part, safe="") for part in (unit.lens, unit.model, unit.operator))
        return "rows", *folders, f"{unit.shard:05d}.parquet"

    def rows(self) -> Any:
        """Return all rows as Arrow data: a dataset that is read as it is queried, or a table for files at a URL.

        Files at a URL, which Python reads, are read at once: DuckDB's threads and Arrow's would wait for the interpreter,
        and now and then for each other.
        """
        import pyarrow.dataset  # importing it takes longer than reading a small run

        files = self.unit_files()
        if not files:
            return ROWS.empty_table()
        found = pyarrow.dataset.dataset(files, self._row_schema(files), filesystem=self.fs)
        return found if self._is_local else found.to_table()

    def _row_schema(self, files: list[str]) -> pa.Schema:
        """Return the common columns and those of every lens that has rows, from one file of each."""
        depth = len(self.path("rows").split("/"))
        first = {file.split("/")[depth]: file for file in reversed(files)}
        own = []
        for file in first.values():
            with self.fs.open(file, "rb") as opened:
                own.append(pq.read_schema(opened).remove_metadata())
        return pa.unify_schemas([ROWS, *own])

    def tables(self) -> list[str]:
        """Return the names of the tables besides the rows: samples, clean and those that lenses add."""
        found = self.fs.ls(self.path(), detail=False) if self.exists() else []
        names = (posixpath.basename(path) for path in found)
        return sorted(name.removesuffix(".parquet") for name in names if name.endswith(".parquet"))

    def connect(self) -> duckdb.DuckDBPyConnection:
        """Return a DuckDB connection with the table `rows` and the run's other tables.

        The rows of a small local run are read once and queried in one thread, which is faster and always adds up in the
        same order; those of a large one are read as they are queried.
        """
        files = self.unit_files()
        small = self._is_local and bool(files) and sum(map(os.path.getsize, files)) <= _SMALL
        connection = duckdb.connect(config={"threads": 1} if small else {})
        if small:
            connection.register("empty", ROWS.empty_table())
            connection.execute(
                "create table rows as from empty union all by name from read_parquet($files, union_by_name = true)",
                {"files": files},
            )
            connection.unregister("empty")
        else:
            connection.register("rows", self.rows())
        for name in {*self.tables(), *_TABLES}:
            if name in _TABLES and not self.exists(f"{name}.parquet"):
                connection.register(name, _TABLES[name].empty_table())
            else:
                connection.register(name, _complete(self.table(name), _TABLES.get(name)))
        return connection


def _complete(table: pa.Table, schema: pa.Schema | None) -> pa.Table:
    """Return a table with all columns of a schema: those that it lacks are null."""
    for field in schema or ():
        if field.name not in table.column_names:
            table = table.append_column(field, pa.nulls(len(table), field.type))
    return table


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    repeating = [field.name for field in table.schema if not pa.types.is_list(field.type)]  # boxes hardly ever do
    pq.write_table(table, sink, compression="zstd", use_dictionary=repeating)
    return bytes(sink.getvalue().to_pybytes())
