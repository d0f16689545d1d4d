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
parts/              what processes that measure one run together keep (see `parts`)
.lock               held by processes that measure the run (see `lock`)

Tables have checksums, and name the run that they belong to by a digest of its identity.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import quote

import duckdb

from brinell.errors import DamagedFile, RunError
from brinell.runs.files import HALF_WRITTEN, create_bytes, is_local, read_bytes, replace_bytes, replacing, with_retries
from brinell.runs.local import open_folder
from brinell.runs.schema import CLEAN, ROWS, SAMPLES, Unit
from brinell.runs.tables import create_table, digest, pack, read_into, read_parquet, read_share, with_share

if TYPE_CHECKING:
    import pyarrow as pa  # imported where it is needed: a summary is read without

GATE = "gate.json"
FORMAT = 1  # of a run's folder; others are refused with instructions
UNFINISHED = "unfinished"  # folder of the answers of long units so far
# what only runs write, in addition to what lenses store: folders, and beginnings of names
_OWNED = (
    "rows/", "exhibits/", f"{UNFINISHED}/", "parts/", "manifest.json.", "samples.parquet.", "clean.parquet.",
    "precision.parquet.", "exhibits.json.", "checksums.json.",
)  # fmt: skip
_FEW = 32  # files that are looked for one by one, without listing all of them
_SMALL = 32_000_000  # bytes of row files that are read into memory at once
_PARTS = ("identity", "models", "operators", "versions", "execution")  # of a manifest, all mappings
_TABLES = {"samples": SAMPLES, "clean": CLEAN}


class Store:
    """Reads and writes one run's folder. Tables that are written belong to `run`, the digest of a run's identity."""

    run: str | None = None
    _written: dict[str, str] | None = None

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self.url = os.fspath(url)
        if "\0" in self.url:
            raise RunError(f"{self.url!r} can't be the name of a folder; choose another one with --out")
        self.fs, self.root = open_folder(self.url)

    def path(self, *parts: str) -> str:
        """Return a path inside the run's folder, for its file system."""
        return posixpath.join(self.root, *parts)

    @property
    def is_local(self) -> bool:
        """Whether the folder is on this machine."""
        return is_local(self.fs)

    def place(self, *parts: str) -> str:
        """Return a path inside the run's folder for people: a local path or a URL."""
        return self.path(*parts) if self.is_local else posixpath.join(self.url, *parts)

    def exists(self, *parts: str) -> bool:
        """Whether a file exists."""
        return bool(with_retries(self.fs, lambda: self._fresh().exists(self.path(*parts))))

    def _fresh(self) -> Any:
        """Return the file system without what it remembers of folders, in which other processes write."""
        if not self.is_local:
            self.fs.invalidate_cache()
        return self.fs

    def names(self, *parts: str) -> list[str]:
        """Return the names of the files in a folder, sorted; none if it doesn't exist."""
        try:
            found = with_retries(self.fs, lambda: self._fresh().ls(self.path(*parts), detail=False))
        except FileNotFoundError:
            return []
        return sorted(posixpath.basename(path) for path in found)

    # ---- bytes ----

    def read(self, *parts: str) -> bytes:
        """Return the content of a file."""
        try:
            return read_bytes(self.fs, self.path(*parts))
        except FileNotFoundError:
            raise RunError(f"{self.url} has no {'/'.join(parts)}; is it the folder of a brinell run?") from None
        except OSError as error:
            raise RunError(f"can't read {self.place(*parts)}: {error.strerror or error}") from error

    def read_if_there(self, *parts: str) -> bytes | None:
        """Return the content of a file; None if there is none."""
        return self.read(*parts) if self.exists(*parts) else None

    def read_json(self, *parts: str) -> Any:
        """Return the content of a JSON file."""
        try:
            return json.loads(self.read(*parts))
        except ValueError as error:
            raise DamagedFile(self.place(*parts)) from error

    def write(self, data: bytes, *parts: str) -> None:
        """Write a file that appears whole or not at all."""
        with self._write_errors(f"{len(data) / 1e6:.1f} MB", *parts):
            replace_bytes(self.fs, self.path(*parts), data)
        if self._written is not None:
            self._written["/".join(parts)] = digest(data)

    @contextlib.contextmanager
    def writing(self, *parts: str) -> Iterator[IO[bytes]]:
        """Yield a file to write, for content that memory should not hold; it appears whole when the context ends."""
        with self._write_errors(parts[-1], *parts), replacing(self.fs, self.path(*parts)) as file:
            yield file

    @contextlib.contextmanager
    def recording(self) -> Iterator[dict[str, str]]:
        """Record the digests of all files that are written meanwhile."""
        written: dict[str, str] = {}
        self._written = written
        try:
            yield written
        finally:
            self._written = None

    def create(self, data: bytes, *parts: str) -> bool:
        """Write a file if there is none, and return whether there was none. Of several processes, one succeeds."""
        with self._write_errors(f"{len(data) / 1e6:.1f} MB", *parts):
            return create_bytes(self.fs, self.path(*parts), data)

    @contextlib.contextmanager
    def _write_errors(self, what: str, *parts: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise RunError(
                    f"no space left to write {what} into {self.url}; nothing finished is lost: free some space and "
                    "give the same command again"
                ) from error
            raise RunError(f"can't write {self.path(*parts)}: {error.strerror or error}") from error

    def remove(self, *parts: str) -> None:
        """Remove a file or folder, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            with_retries(self.fs, lambda: self.fs.rm(self.path(*parts), recursive=True))

    def remove_parts(self, lenses: Iterable[str]) -> None:
        """Remove what a killed process has left half-written of files that only runs of these lenses write."""
        owned = tuple(self.path(name) for name in (*_OWNED, *(f"{lens}/" for lens in lenses)))
        for path in self.fs.find(self.path()):
            if path.endswith(HALF_WRITTEN) and path.startswith(owned):
                self.fs.rm_file(path)

    # ---- manifest ----

    def manifest(self) -> dict[str, Any]:
        """Return the manifest, or raise if it is not that of a run of this format."""
        try:
            content: dict[str, Any] = json.loads(self.read("manifest.json"))
            if not all(isinstance(content.get(part, {}), dict) for part in _PARTS) or "identity" not in content:
                raise ValueError
        except (ValueError, AttributeError):
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
        self.write(_dump(manifest), "manifest.json")

    def create_manifest(self, manifest: dict[str, Any]) -> bool:
        """Write the manifest of a new run, and return whether no other process was faster."""
        return self.create(_dump(manifest), "manifest.json")

    # ---- tables ----

    def table(self, name: str) -> pa.Table:
        """Return a table other than the rows: samples, clean, precision or saliency."""
        return self._read_parquet(f"{name}.parquet")

    def write_table(self, name: str, table: pa.Table) -> None:
        """Write a table other than the rows."""
        self.write(pack(table, self.run), f"{name}.parquet")

    def write_unit(self, unit: Unit, table: pa.Table, share: float = 1.0) -> None:
        """Write the rows of a finished unit, and which share of its queries they are."""
        self.write(pack(with_share(table, share), self.run), *unit_file(unit))

    def unit(self, unit: Unit) -> pa.Table:
        """Return the rows of a unit."""
        return self._read_parquet(*unit_file(unit))

    def _read_parquet(self, *parts: str) -> pa.Table:
        try:
            return read_parquet(self.read(*parts))
        except ValueError as error:
            raise DamagedFile(self.place(*parts)) from error

    def shares(self, units: Iterable[Unit], *, sampled: bool) -> dict[Unit, float]:
        """Return the share of queries that each unit has rows of: 0 where there are none, 1 if the run is not `sampled`."""
        paths = {unit: self.path(*unit_file(unit)) for unit in units}
        few = len(paths) <= _FEW
        found = (path for unit, path in paths.items() if self.exists(*unit_file(unit)))
        done = set(found) if few else set(self.unit_files())
        return {unit: 0.0 if path not in done else self._share(path) if sampled else 1.0 for unit, path in paths.items()}

    def _share(self, path: str) -> float:
        with self.fs.open(path, "rb") as opened:
            return read_share(opened)

    def unit_files(self) -> list[str]:
        """Return the files of all finished units."""
        try:
            found = with_retries(self.fs, lambda: self._fresh().find(self.path("rows")))
        except FileNotFoundError:
            return []
        return sorted(path for path in found if path.endswith(".parquet"))

    def measured(self) -> bool:
        """Whether anything was measured: rows, or answers of a long unit that is not finished."""
        return bool(self.unit_files()) or self.exists(UNFINISHED)

    def rows(self) -> Any:
        """Return all rows as Arrow data: a dataset that is read as it is queried, or a table for files at a URL.

        Files at a URL, which Python reads, are read at once: DuckDB's threads and Arrow's would wait for the interpreter,
        and now and then for each other.
        """
        import pyarrow.dataset

        from brinell.runs.arrow import ROWS_TABLE

        files = self.unit_files()
        if not files:
            return ROWS_TABLE.empty_table()
        found = pyarrow.dataset.dataset(files, self._row_schema(files), filesystem=None if self.is_local else self.fs)
        return found if self.is_local else found.to_table()

    def _row_schema(self, files: list[str]) -> pa.Schema:
        """Return the common columns and those of every lens that has rows, from one file of each."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        from brinell.runs.arrow import ROWS_TABLE

        depth = len(self.path("rows").split("/"))
        first = {file.split("/")[depth]: file for file in reversed(files)}
        own = []
        for file in sorted(first.values()):  # the order in which DuckDB would find the columns
            with self.fs.open(file, "rb") as opened:
                own.append(pq.read_schema(opened).remove_metadata())
        return pa.unify_schemas([ROWS_TABLE, *own])

    def tables(self) -> list[str]:
        """Return the names of the tables besides the rows: samples, clean and those that lenses add."""
        return [name.removesuffix(".parquet") for name in self.names() if name.endswith(".parquet")]

    def connect(self) -> duckdb.DuckDBPyConnection:
        """Return a DuckDB connection with the table `rows` and the run's other tables.

        The rows of a small local run are read once and queried in one thread, which is faster and always adds up in the
        same order; those of a large one are read as they are queried.
        """
        files = self.unit_files()
        small = self.is_local and bool(files) and sum(map(os.path.getsize, files)) <= _SMALL
        connection = duckdb.connect(config={"threads": 1} if small else {})
        if small:
            read_into(connection, "rows", ROWS, files)
        else:
            connection.register("rows", self.rows())
        stored = self.tables()
        for name in {*stored, *_TABLES}:
            schema, file = _TABLES.get(name, {}), f"{name}.parquet"
            if name not in stored:
                create_table(connection, name, schema)
            elif self.is_local:
                try:
                    read_into(connection, name, schema, [self.path(file)])
                except duckdb.Error as error:
                    raise DamagedFile(self.place(file)) from error
            else:
                connection.register("stored", self.table(name))
                create_table(connection, name, schema, "from stored")
                connection.unregister("stored")
        return connection


def unit_file(unit: Unit) -> tuple[str, ...]:
    """Return the path of a unit's rows in the run's folder."""
    folders = (quote(part, safe="") for part in (unit.lens, unit.model, unit.operator))
    return "rows", *folders, f"{unit.shard:05d}.parquet"


def digest_of(manifest: Mapping[str, Any]) -> str:
    """Return 16 hex digits that identify a run: its settings, models and data."""
    text = json.dumps(manifest["identity"], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _dump(manifest: dict[str, Any]) -> bytes:
    return json.dumps(manifest, indent=1, ensure_ascii=False).encode()
