"""Writes a lens's columns as rows: the common columns and the lens's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from brinell.boxes import Detections
from brinell.criteria.criterion import CAUSES
from brinell.engine.missing import Part
from brinell.engine.shards import Entry
from brinell.lenses.method import Categorical, Columns, Files, Nullable
from brinell.lenses.reader import Reader
from brinell.masks import Overlap
from brinell.runs.arrow import ROWS_TABLE, arrow_schema
from brinell.runs.schema import ROWS, Unit
from brinell.runs.store import Store
from brinell.runs.tables import with_files

INCLUSION = "inclusion"


def write_rows(store: Store, part: Part, shard: Sequence[Entry], labels: Tensor, columns: Columns, reader: Reader) -> None:
    """Store what a lens measured: its files first, so that rows refer to nothing that isn't there.

    `labels` are those of the part's samples. Rows of a smaller budget are kept, and the order is that of a full run.
    """
    files = columns.pop("files", None)
    written = (
        {f"{part.unit.lens}/{name}": content for name, content in files.content.items()} if isinstance(files, Files) else {}
    )
    for name, content in written.items():
        store.write(content, *name.split("/"))
    entries = [shard[sample] for sample in part.samples]
    table = rows_table(part.unit, entries, labels, columns, arrow_schema(ROWS, reader.columns))
    before, now = part.inclusion
    if part.done > 0:
        old = store.unit(part.unit)
        if before < 1:  # exactly 1 again where all of an image's cells are there
            old = _with_inclusion(old, old[INCLUSION].to_numpy() / before)
        if reader.counted:
            again = pa.array([entry.image for entry in entries], pa.string())
            old = old.filter(pc.invert(pc.is_in(old["image"].cast(pa.string()), again)))
        table = _merge(old, table, [entry.image for entry in shard], reader.order)
    if part.share == 1:
        table = _with_inclusion(table, None)
    elif now < 1:
        table = _with_inclusion(table, table[INCLUSION].fill_null(1.0).to_numpy() * now)
    store.write_unit(part.unit, with_files(table, written) if written else table, part.share)


def _with_inclusion(table: pa.Table, values: np.ndarray | None) -> pa.Table:
    """Return rows with the probability that a budget included them; None: nothing was left out."""
    place = table.schema.get_field_index(INCLUSION)
    field = table.schema.field(place)
    column = pa.nulls(len(table), field.type) if values is None else pa.array(values, field.type)
    return table.set_column(place, field, column)


def _merge(old: pa.Table, new: pa.Table, images: Sequence[str], order: Sequence[str]) -> pa.Table:
    """Return the rows of a smaller budget and those that a larger one adds, in the order of a full run.

    All cells of an image that were chosen at random, which clean images were not, have the probability of its new ones.
    """
    table = pa.concat_tables([old.cast(new.schema), new]).unify_dictionaries().combine_chunks()
    position = {image: place for place, image in reversed(list(enumerate(images)))}
    places = np.array([position[image] for image in table["image"].to_pylist()], dtype=np.int64)
    included, fresh = table[INCLUSION].fill_null(1.0).to_numpy(), np.arange(len(table)) >= len(old)
    latest = np.zeros(len(images))
    np.maximum.at(latest, places[fresh], included[fresh])
    chosen = (included < 1) & (latest[places] > 0)
    table = _with_inclusion(table, np.where(chosen, latest[places], included))
    table = table.take(pa.array(np.lexsort([_key(table, name, places) for name in reversed(order)])))
    return table.replace_schema_metadata(old.schema.metadata)  # the files that old rows refer to


def _key(table: pa.Table, name: str, places: np.ndarray) -> Any:
    """Return numbers to sort rows by: images by their places, words by their codes, and null first."""
    if name == "image":
        return places
    if name == "changed":  # clean images first
        return table["level"].fill_null(0).to_numpy() > 0
    column = table[name].combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.indices
    return column.fill_null(-1).to_numpy(zero_copy_only=False)


def rows_table(
    unit: Unit, entries: Sequence[Entry], labels: Tensor, columns: Columns, schema: pa.Schema = ROWS_TABLE
) -> pa.Table:
    """Return a lens's columns as rows of a schema; columns that it doesn't provide are null."""
    samples = columns["sample"]
    assert isinstance(samples, Tensor)
    sample = samples.numpy()
    count = len(sample)
    named = {"lens": unit.lens, "model": unit.model, "operator": unit.operator}
    detections = columns.get("detections")
    lists = _lists(detections) if isinstance(detections, Detections) else {}
    overlap = columns.get("overlap")
    lists |= _class_lists(overlap) if isinstance(overlap, Overlap) else {}
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
            assert not isinstance(column, Detections | Overlap | Files)
            if field.name == "cause":
                column = _causes(column)
            elif field.name == "iou" and isinstance(column, Tensor):  # NaN where nothing of the true mask is to be seen
                column = Nullable(column.cpu(), ~column.cpu().isnan())
            arrays.append(_array(column, field.type))
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
    return {name: pa.ListArray.from_arrays(ends, each).cast(ROWS_TABLE.field(name).type) for name, each in values.items()}


def _class_lists(overlap: Overlap) -> dict[str, pa.Array]:
    """Return how masks agree as list columns, without the classes that neither mask has."""
    there = (overlap.union > 0).cpu()
    ends = pa.array([0, *there.sum(1).cumsum(0).tolist()], pa.int32())
    values = {
        "mask_classes": there.nonzero()[:, 1].to(torch.int16),
        "mask_common": overlap.common.cpu()[there],
        "mask_union": overlap.union.cpu()[there],
    }
    return {name: pa.ListArray.from_arrays(ends, pa.array(each.numpy())) for name, each in values.items()}


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
