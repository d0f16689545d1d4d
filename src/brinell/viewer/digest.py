"""The digest of a run: how easily each image breaks under each operator, in arrays that a browser reads as they are.

It is computed from rows once and stored beside the run, or in the cache folder if that can't be written. One *column* is an
operator of a lens. For each model, column and image it has

first   uint8: how strong the weakest change is that breaks the image, 0 to 200 for an intensity of 0 to 100; or a status
value   float32: what hardness is for the lens, a share, or else its headline measure; NaN where there is none
shard   uint16: the file of rows that the image is in (for the server alone)

What counts as a failure, its intensity and the measure come from the lens's reader; no lens is named here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from brinell.lenses.lens import LENSES
from brinell.lenses.reader import FAILURE_COLUMNS
from brinell.runs.plain import to_plain
from brinell.runs.run import Run
from brinell.viewer.stored import Stored
from brinell.viewer.tables import connect, operator_files
from brinell.viewer.values import Values, by_model, readers, values_of

FORMAT = 4
HEAD = "digest.json"
STRONGEST = 200  # the code of an intensity of 100
WRONG, SURVIVED, UNTESTED = 253, 254, 255  # wrong when clean; never broken; no rows
Progress = Callable[[float], None]  # gets the share that is done


@dataclass(frozen=True)
class Column:
    """An operator of a lens, and the measure whose values it has."""

    lens: str
    operator: str
    title: str
    unit: str
    measure: str | None
    what: str | None
    better: str | None
    points: bool  # whether values are shares in [0, 1]
    white_box: bool = False


@dataclass(frozen=True)
class Cells:
    """A model's cells: arrays (columns, images)."""

    first: NDArray[np.uint8]
    value: NDArray[np.float32]
    shard: NDArray[np.uint16]

    def pack(self) -> bytes:
        """Return the arrays that a browser reads, one after the other; floats begin at a multiple of four bytes."""
        first = self.first.tobytes()
        return first + bytes(-len(first) % 4) + self.value.astype("<f4").tobytes()


@dataclass(frozen=True, eq=False)
class Digest:
    """Columns, images and, by model, cells. `images` are parallel lists, in the dataset's order."""

    columns: tuple[Column, ...]
    images: Mapping[str, Any]
    cells: Mapping[str, Cells]

    @cached_property
    def description(self) -> bytes:
        """What a browser needs to read the cells, as JSON; of a large run it takes a while to write."""
        codes = {"strongest": STRONGEST, "wrong": WRONG, "survived": SURVIVED, "untested": UNTESTED}
        columns = [asdict(column) for column in self.columns]
        content = {"columns": columns, "images": self.images, "models": list(self.cells), "codes": codes}
        return json.dumps(content, separators=(",", ":")).encode()

    @cached_property
    def positions(self) -> dict[str, int]:
        """Where each image is in the arrays."""
        return {image: position for position, image in enumerate(self.images["id"])}


# ---- stored digests ----


def read_digest(run: Run, progress: Progress = lambda share: None) -> Digest:
    """Return a run's digest: stored if it is up to date, else computed and, if the run is finished, stored."""
    key, stored = _key(run), Stored(run)
    found = _load(stored, key)
    if found is not None:
        return found
    digest = compute_digest(run, progress)
    if run.finished:
        _save(stored, key, digest)
    return digest


def _key(run: Run) -> str:
    """Return what a digest depends on: its format, the identity of the run, and its row files."""
    files = [(path.removeprefix(run.store.root), Path(path).stat().st_size) for path in run.store.unit_files()]
    text = json.dumps([FORMAT, run.manifest["identity"], files], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _load(stored: Stored, key: str) -> Digest | None:
    try:
        head = json.loads(stored.read(HEAD) or b"{}")
        if head.get("key") != key:
            return None
        columns = tuple(Column(**column) for column in head["columns"])
        shape = len(columns), len(head["images"]["id"])
        cells = {model: _unpack(stored.read(file) or b"", shape) for model, file in head["cells"].items()}
        return Digest(columns, head["images"], cells)
    except (ValueError, KeyError, TypeError):
        return None  # damaged: compute it again


def _save(stored: Stored, key: str, digest: Digest) -> None:
    files = {model: f"{quote(model, safe='')}.bin" for model in digest.cells}
    for model, cells in digest.cells.items():
        stored.write(cells.pack() + cells.shard.astype("<u2").tobytes(), files[model])
    head = {"key": key, "columns": [asdict(column) for column in digest.columns], "images": digest.images, "cells": files}
    stored.write(json.dumps(to_plain(head)).encode(), HEAD)


def _unpack(data: bytes, shape: tuple[int, int]) -> Cells:
    count = shape[0] * shape[1]
    start = count + -count % 4
    first = np.frombuffer(data, np.uint8, count).reshape(shape)
    value = np.frombuffer(data, "<f4", count, start).reshape(shape)
    return Cells(first, value, np.frombuffer(data, "<u2", count, start + 4 * count).reshape(shape))


# ---- computing ----


def compute_digest(run: Run, progress: Progress = lambda share: None) -> Digest:
    """Compute a digest from rows: failures operator by operator, so that memory stays small, and values lens by lens."""
    images = _list_images(run)
    positions = pa.table({"image": images["id"], "position": np.arange(len(images["id"]), dtype=np.int32)})
    work = _list_work(run)
    shape = len(work), len(images["id"])
    cells = {
        model: Cells(np.full(shape, UNTESTED, np.uint8), np.full(shape, np.nan, np.float32), np.zeros(shape, np.uint16))
        for model in run.models
    }
    for number, (lens, operator) in enumerate(work):
        with connect(run, operator_files(run, lens, operator), positions) as connection:
            _fill_status(connection, run, cells, number)
            _fill_failures(connection, run, cells, number, lens)
        progress((number + 1) / (len(work) + 1))
    values: dict[int, Values] = {}
    for lens in dict.fromkeys(lens for lens, _ in work):
        numbers = {operator: number for number, (one, operator) in enumerate(work) if one == lens}
        files = [file for operator in numbers for file in operator_files(run, lens, operator)]
        with connect(run, files, positions) as connection:
            values |= _fill_values(connection, run, cells, lens, numbers)
    columns = [_column(run, lens, operator, values.get(number)) for number, (lens, operator) in enumerate(work)]
    progress(1.0)
    return Digest(tuple(columns), images, cells)


def _list_work(run: Run) -> list[tuple[str, str]]:
    """Return the lenses and operators that have rows, in the order of the config and the manifest."""
    found = {tuple(file.rsplit("/", 4)[1:4:2]) for file in run.store.unit_files()}
    known = [*run.manifest.get("operators", {})]
    operators = [(lens, name) for lens in run.lenses if lens in LENSES for name in known]
    return [pair for pair in operators if tuple(quote(part, safe="") for part in pair) in found]


def _column(run: Run, lens: str, operator: str, values: Values | None) -> Column:
    facts = run.facts(operator)
    return Column(
        lens=lens,
        operator=operator,
        title=run.title(operator),
        unit=facts.get("unit") or "",
        measure=None if values is None else values.name,
        what=None if values is None else values.what,
        better=None if values is None else values.better,
        points=values is not None and values.points,
        white_box=bool(facts.get("white_box")),
    )


def _list_images(run: Run) -> dict[str, Any]:
    """Return the readable images as parallel lists; of equal images, the first. Labels are indices into `labels`."""
    rows = run.query("""
        select image, first(name order by index), first(label order by index), first(label_is_index order by index),
               first(width order by index), first(height order by index), min(index)
        from samples where problem is null group by image order by min(index)
    """)
    model = next(iter(run.models), None)
    labels = {} if model is None else run.labels(model)
    record = None if model is None else run.models[model]
    words = []
    for image, _, label, is_index, *_ in rows:
        index = labels.get(image, int(label) if is_index and label is not None else None)
        words.append((record.class_name(index) if record is not None else None) or label or "")
    names = sorted(set(words))
    numbers = {word: number for number, word in enumerate(names)}
    return {
        "id": [row[0] for row in rows],
        "name": [row[1] for row in rows],
        "label": [numbers[word] for word in words],
        "labels": names,
        "width": [row[4] for row in rows],
        "height": [row[5] for row in rows],
    }


def _fill_status(connection: duckdb.DuckDBPyConnection, run: Run, cells: Mapping[str, Cells], number: int) -> None:
    """Mark tested images as survived, or wrong when clean."""
    found = connection.execute("""
        select model, position, any_value(shard) as shard, bool_or(coalesce(clean.correct, true)) as right_when_clean
        from rows join positions using (image) left join clean using (model, image)
        group by model, position
    """).fetchnumpy()
    for model, mine in by_model(found["model"], run):
        where = found["position"][mine]
        cells[model].first[number, where] = np.where(found["right_when_clean"][mine], SURVIVED, WRONG)
        cells[model].shard[number, where] = found["shard"][mine].clip(0, 65_535)


def _fill_failures(
    connection: duckdb.DuckDBPyConnection, run: Run, cells: Mapping[str, Cells], number: int, lens: str
) -> None:
    """Enter the intensity of the weakest failure."""
    failures = readers(lens).failures
    if failures is None:
        return
    names = ", ".join(FAILURE_COLUMNS)
    found = connection.execute(f"""
        select model, position, min(intensity)::double as intensity
        from ({failures.query(run.lens(lens))}) as failed({names}) join positions using (image)
        group by model, position
    """).fetchnumpy()
    for model, mine in by_model(found["model"], run):
        codes = np.rint(np.nan_to_num(found["intensity"][mine]) * STRONGEST / 100).clip(0, STRONGEST).astype(np.uint8)
        where, first = found["position"][mine], cells[model].first[number]
        first[where] = np.where(first[where] == WRONG, WRONG, codes)


def _fill_values(
    connection: duckdb.DuckDBPyConnection,
    run: Run,
    cells: Mapping[str, Cells],
    lens: str,
    numbers: Mapping[str, int],
) -> dict[int, Values]:
    """Enter the first values that there are of each operator of a lens, and return what they are, by column.

    All operators are read at once: what counts may depend on the others, as the search for a spot does on the grid.
    """
    chosen: dict[int, Values] = {}
    for values in values_of(run, lens):
        if len(chosen) == len(numbers):
            break
        found = connection.execute(f"""
            select model, operator, position, avg(value)::float as value from ({values.sql}) join positions using (image)
            where value is not null group by all
        """).fetchnumpy()
        operators = np.asarray(found["operator"]).astype(object)
        for operator, number in numbers.items():
            own = operators == operator
            if number in chosen or not own.any():
                continue
            chosen[number] = values
            for model, mine in by_model(found["model"], run):
                cells[model].value[number, found["position"][own & mine]] = found["value"][own & mine]
    return chosen
