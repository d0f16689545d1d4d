"""Writes a lens's columns as rows: the common columns and the lens's own."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import torch
from torch import Tensor

from brinell.boxes import Detections
from brinell.criteria.criterion import CAUSES
from brinell.engine.shards import Entry
from brinell.lenses.method import Categorical, Columns, Files, Nullable
from brinell.runs.schema import ROWS, Unit
from brinell.runs.store import Store


def write_rows(
    store: Store, unit: Unit, entries: Sequence[Entry], labels: Tensor, columns: Columns, own: pa.Schema
) -> None:
    """Store what a lens measured: its files first, so that rows refer to nothing that isn't there. `own` are the lens's
    columns in addition to the common ones.
    """
    files = columns.pop("files", None)
    if isinstance(files, Files):
        for name, content in files.content.items():
            store.write(content, unit.lens, *name.split("/"))
    schema = pa.unify_schemas([ROWS, own])
    store.write_unit(unit, rows_table(unit, entries, labels, columns, schema))


def rows_table(
    unit: Unit, entries: Sequence[Entry], labels: Tensor, columns: Columns, schema: pa.Schema = ROWS
) -> pa.Table:
    """Return a lens's columns as rows of a schema; columns that it doesn't provide are null."""
    samples = columns["sample"]
    assert isinstance(samples, Tensor)
    sample = samples.numpy()
    count = len(sample)
    named = {"lens": unit.lens, "model": unit.model, "operator": unit.operator}
    detections = columns.get("detections")
    lists = _lists(detections) if isinstance(detections, Detections) else {}
    arrays = []
    for field in schema:
        if field.name in named:
            indices = pa.array([0] * count, pa.int32())
            arrays.append(pa.DictionaryArray.from_arrays(indices, [named[field.name]]))
        elif field.name == "image":
            ids = [entry.image for entry in entries]
            arrays.append(pa.DictionaryArray.from_arrays(pa.array(sample, pa.int32()), ids))
        elif field.name == "label":
            arrays.append(pa.array(labels.numpy()[sample]).cast(field.type))
        elif field.name in lists:
            arrays.append(lists[field.name])
        elif field.name in columns:
            column = columns[field.name]
            assert not isinstance(column, Detections | Files)
            arrays.append(_array(_causes(column) if field.name == "cause" else column, field.type))
        else:
            arrays.append(pa.nulls(count, field.type))
    return pa.table(arrays, schema=schema)


def _lists(detections: Detections) -> dict[str, pa.Array]:
    """Return detections as list columns, without the padding."""
    there = (detections.labels >= 0).cpu()
    ends = pa.array([0, *there.sum(1).cumsum(0).tolist()], pa.int32())
    values = {
        "detected_boxes": pa.FixedSizeListArray.from_arrays(detections.boxes.cpu()[there].flatten().numpy(), 4),
        "detected_labels": pa.array(detections.labels.cpu()[there].to(torch.int16).numpy()),
        "detected_scores": pa.array(detections.scores.cpu()[there].numpy()),
    }
    return {name: pa.ListArray.from_arrays(ends, each).cast(ROWS.field(name).type) for name, each in values.items()}


def _causes(column: Tensor | Nullable | Categorical) -> Tensor | Nullable | Categorical:
    """Return indices into the causes as words; -1, or what is not valid, is null."""
    if isinstance(column, Categorical):
        return column
    codes = column.values.masked_fill(~column.valid, -1) if isinstance(column, Nullable) else column
    return Categorical(codes.cpu(), CAUSES)


def _array(column: Tensor | Nullable | Categorical, kind: pa.DataType) -> pa.Array:
    if isinstance(column, Categorical):
        codes = column.codes.numpy()
        return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32(), mask=codes < 0), list(column.categories))
    if isinstance(column, Nullable) and column.values.ndim == 2:
        values = [row if known else None for row, known in zip(column.values.tolist(), column.valid.tolist(), strict=True)]
        return pa.array(values, kind)
    if isinstance(column, Nullable):
        return pa.array(column.values.numpy(), mask=~column.valid.numpy()).cast(kind)
    return pa.array(column.cpu().numpy()).cast(kind)
