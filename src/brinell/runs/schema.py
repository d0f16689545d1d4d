"""The columns that the rows of every lens have, and the other tables of a run. A lens adds columns of its own.

A schema is plain data, so that reading a run needs no pyarrow: names of columns with their types. Types are bool, int16,
int32, int64, float32, float64, text, name (text that repeats), lists of these, as in float32[], and text{}: texts by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Schema = Mapping[str, str]
BOX = "float32[]"  # xyxy in pixels; a list of fixed size that may be null can't be read back by older pyarrow
DISTANCES = ("mse", "mae", "l1", "l2", "linf", "l0", "changed")
_SQL = {
    "bool": "boolean",
    "int16": "smallint",
    "int32": "integer",
    "int64": "bigint",
    "float32": "float",
    "float64": "double",
    "text": "varchar",
    "name": "varchar",
    "text{}": "map(varchar, varchar)",
}

ROWS: Schema = {
    "lens": "name",
    "model": "name",
    "operator": "name",  # name:variant
    "image": "name",  # the id that comes from the image's content
    "label": "int32",  # the model's output index that counts as right
    "level": "int16",  # of an operator; for a property, which point of its grid, from 1
    "amount": "float32",  # the level in the operator's natural unit
    "prediction": "int32",
    "correct": "bool",  # not broken by the criterion
    "rank": "int32",  # number of classes ranked before the true one
    "probability": "float32",  # of the true label
    "confidence": "float32",  # of the prediction
    "changed": "float32",  # share of pixels that differ from the clean image
    "l0": "float32",
    "l1": "float32",
    "l2": "float32",
    "linf": "float32",
    "mae": "float32",
    "mse": "float32",
    "status": "name",  # broken, survived, skipped (wrong when clean), failed (the model returned no answer)
    "inclusion": "float64",  # probability that a budget included the row; null where nothing was left out
    "queries": "int32",  # number of queries, including speculative ones
    "cause": "name",  # of detectors: why the answer is broken (see `criteria.criterion.CAUSES`)
    # of detectors: what was found, the best first, on the model input
    "detected_boxes": f"{BOX}[]",
    "detected_labels": "int16[]",
    "detected_scores": "float32[]",
    "embedding_distance": "float32",  # of embedders: cosine distance from the clean image's embedding
    # of segmenters
    "iou": "float32",  # mean IoU of the classes that are in the image
    "relabelled": "float32",  # share of pixels whose class is another than on the clean image
    # how many pixels of each class the mask and the true one have in common, and how many either has
    "mask_classes": "int16[]",
    "mask_common": "int32[]",
    "mask_union": "int32[]",
}

SAMPLES: Schema = {
    "index": "int64",  # in the dataset
    "image": "text",
    "name": "text",
    "label": "text",
    "label_is_index": "bool",
    "width": "int32",
    "height": "int32",
    "problem": "text",  # why it was skipped; null if it was not
    "boxes": f"{BOX}[]",  # of its objects, in its own pixels
    "box_labels": "text[]",  # as in the dataset
    "object": "int32",  # which of the boxes the label is of
    "original": "text",  # the scene that it is a photograph of, where photographs have variants
    "variant": "text",  # which one; null for the original
    "metadata": "text{}",  # further columns of the dataset, by which results can be sliced
    "mask": "text",  # the id that comes from the content of its mask, for segmenters
}

CLEAN: Schema = {
    "model": "name",
    "index": "int64",
    "label": "int32",
    "prediction": "int32",
    "confidence": "float32",
    "correct": "bool",
    "kept": "bool",
    # of detectors: the dataset's objects on the model input
    "true_boxes": f"{BOX}[]",
    "true_labels": "int32[]",  # as the model's outputs; -1 for classes that it doesn't know
    "region": BOX,  # of the object that the label is of
}


@dataclass(frozen=True, order=True)
class Unit:
    """One piece of work that is written whole or not at all."""

    lens: str
    model: str
    operator: str
    shard: int


def empty_sql(schema: Schema) -> str:
    """Return SQL that selects no rows of a schema."""
    columns = (f'null::{_sql_type(kind)} as "{name}"' for name, kind in schema.items())
    return f"select {', '.join(columns)} where false"


def _sql_type(kind: str) -> str:
    item = kind.rstrip("[]")
    return _SQL[item] + kind[len(item) :]
