"""The columns that the rows of every lens have, and the other tables of a run. A lens adds columns of its own."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

NAME = pa.dictionary(pa.int32(), pa.string())
BOX = pa.list_(pa.float32())  # xyxy in pixels; a list of fixed size that may be null can't be read back by older pyarrow

DISTANCES = ("mse", "mae", "l1", "l2", "linf", "l0", "changed")

ROWS = pa.schema(
    [
        ("lens", NAME),
        ("model", NAME),
        ("operator", NAME),  # name:variant
        ("image", NAME),  # the id that comes from the image's content
        ("label", pa.int32()),  # the model's output index that counts as right
        ("level", pa.int16()),  # of an operator; for a property, which point of its grid, from 1
        ("amount", pa.float32()),  # the level in the operator's natural unit
        ("prediction", pa.int32()),
        ("correct", pa.bool_()),  # not broken by the criterion
        ("rank", pa.int32()),  # number of classes ranked before the true one
        ("probability", pa.float32()),  # of the true label
        ("confidence", pa.float32()),  # of the prediction
        ("changed", pa.float32()),  # share of pixels that differ from the clean image
        ("l0", pa.float32()),
        ("l1", pa.float32()),
        ("l2", pa.float32()),
        ("linf", pa.float32()),
        ("mae", pa.float32()),
        ("mse", pa.float32()),
        ("status", NAME),  # broken, survived, skipped (wrong when clean), failed (the model returned no answer)
        ("queries", pa.int32()),  # number of queries, including speculative ones
        ("cause", NAME),  # of detectors: why the answer is broken (see `criteria.criterion.CAUSES`)
        # of detectors: what was found, the best first, on the model input
        ("detected_boxes", pa.list_(BOX)),
        ("detected_labels", pa.list_(pa.int16())),
        ("detected_scores", pa.list_(pa.float32())),
    ]
)

SAMPLES = pa.schema(
    [
        ("index", pa.int64()),  # in the dataset
        ("image", pa.string()),
        ("name", pa.string()),
        ("label", pa.string()),
        ("label_is_index", pa.bool_()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("problem", pa.string()),  # why it was skipped; null if it was not
        ("boxes", pa.list_(BOX)),  # of its objects, in its own pixels
        ("box_labels", pa.list_(pa.string())),  # as in the dataset
        ("object", pa.int32()),  # which of the boxes the label is of
        ("original", pa.string()),  # the scene that it is a photograph of, where photographs have variants
        ("variant", pa.string()),  # which one; null for the original
    ]
)

CLEAN = pa.schema(
    [
        ("model", NAME),
        ("index", pa.int64()),
        ("label", pa.int32()),
        ("prediction", pa.int32()),
        ("confidence", pa.float32()),
        ("correct", pa.bool_()),
        ("kept", pa.bool_()),
        # of detectors: the dataset's objects on the model input
        ("true_boxes", pa.list_(BOX)),
        ("true_labels", pa.list_(pa.int32())),  # as the model's outputs; -1 for classes that it doesn't know
        ("region", BOX),  # of the object that the label is of
    ]
)


@dataclass(frozen=True, order=True)
class Unit:
    """One piece of work that is written whole or not at all."""

    lens: str
    model: str
    operator: str
    shard: int
