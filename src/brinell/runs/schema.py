"""The columns of the rows, named once. Every number in every report is computed from them."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

_NAME = pa.dictionary(pa.int32(), pa.string())
_BOX = pa.list_(pa.float32())  # xyxy in pixels; a list of fixed size that may be null can't be read back by older pyarrow

ROWS = pa.schema(
    [
        ("lens", _NAME),
        ("model", _NAME),
        ("operator", _NAME),  # name:variant
        ("image", _NAME),  # the id that comes from the image's content
        ("label", pa.int32()),  # the model's output index that counts as right
        ("level", pa.int16()),  # of an operator; for a property, which point of its grid, from 1
        ("amount", pa.float32()),  # the level in the operator's natural unit
        ("prediction", pa.int32()),
        ("correct", pa.bool_()),  # not broken by the criterion
        ("rank", pa.int32()),  # classes placed before the true one
        ("probability", pa.float32()),  # of the true label
        ("confidence", pa.float32()),  # of the prediction
        ("changed", pa.float32()),  # share of pixels that differ from the clean image
        ("l0", pa.float32()),
        ("l1", pa.float32()),
        ("l2", pa.float32()),
        ("linf", pa.float32()),
        ("mae", pa.float32()),
        ("mse", pa.float32()),
        ("grey", pa.float32()),  # mean grey value, 0..255, where the operator is told by it
        ("colours", pa.int32()),  # distinct colours, where the operator is told by them
        # of the knob lens: a row an image and direction
        ("status", _NAME),  # broken, survived, skipped (wrong when clean), failed (the model gave no answer)
        ("direction", _NAME),
        ("smallest", pa.bool_()),  # the row that stands for its image: its smallest breaking change
        ("severity", pa.float64()),
        ("severity_x", pa.float64()),  # of a property with several numbers
        ("severity_y", pa.float64()),
        ("until", pa.float64()),  # the last severity of a breaking interval, where the whole grid was asked
        # whether the image recovers from a break as the change grows, where the whole grid was asked
        ("uneven", pa.bool_()),
        ("queries", pa.int32()),  # questions to the model, with those that were asked ahead
        # of the fragility lens: a row an image, size (the operator), kind and way of judging
        ("kind", _NAME),  # loose shift, strict shift, loose shrink, strict shrink
        ("judged_by", _NAME),  # correct or label: what has to change
        ("side", pa.int32()),  # of the windows, in pixels
        ("windows", pa.int32()),  # that were judged
        ("recognised", pa.int32()),  # of them
        ("fragile", pa.int32()),
        ("lost", pa.int32()),  # fragile ones that are right and become wrong
        ("gained", pa.int32()),  # that are wrong and become right
        ("inside", pa.int32()),  # judged windows whose middle is in the object's box
        ("inside_fragile", pa.int32()),
        # the pair of windows whose confidence falls the most, or a minimal image
        ("x", pa.int32()),
        ("y", pa.int32()),
        ("to_x", pa.int32()),
        ("to_y", pa.int32()),
        ("fall", pa.float32()),
        # of the highlight lens: a row an image and spot, in pixels of the original
        ("spot_x", pa.float64()),
        ("spot_y", pa.float64()),
        ("sigma", pa.float64()),
        ("strength", pa.float64()),  # the peak, as a share of 255
        ("cell", pa.int16()),  # of the grid, row by row from 0
        # of the geometry lens: a row an image, or of random motions a row an image, draw and score
        ("score", pa.float64()),  # geodesic score of the motion
        ("motion", pa.list_(pa.float64())),  # its coordinates in the group: radians, pixels, log-scale
        ("parts", pa.list_(pa.float64())),  # what each coordinate would add to the score alone, to first order
        ("target", pa.int32()),  # the class that ManiFool went towards
        ("steps", pa.int32()),  # that it took
        ("draw", pa.int16()),  # of a random motion
        ("reason", _NAME),  # why there is no motion, or none of this score; empty where there is one
        ("gradients", pa.int32()),
        ("seconds", pa.float32()),  # that an image took, on average over the unit
        # of detectors: what was found, the best first, on the model input
        ("detected_boxes", pa.list_(_BOX)),
        ("detected_labels", pa.list_(pa.int16())),
        ("detected_scores", pa.list_(pa.float32())),
    ]
)

SAMPLES = pa.schema(
    [
        ("index", pa.int64()),  # place in the dataset
        ("image", pa.string()),
        ("name", pa.string()),
        ("label", pa.string()),
        ("label_is_index", pa.bool_()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("problem", pa.string()),  # why it was left out; null where it was not
        ("boxes", pa.list_(_BOX)),  # of its objects, in its own pixels
        ("box_labels", pa.list_(pa.string())),  # as the dataset had them
        ("object", pa.int32()),  # which of the boxes the label is of
        ("original", pa.string()),  # the scene that it is a photograph of, where photographs have variants
        ("variant", pa.string()),  # which one; null for the original
    ]
)

CLEAN = pa.schema(
    [
        ("model", _NAME),
        ("index", pa.int64()),
        ("label", pa.int32()),
        ("prediction", pa.int32()),
        ("confidence", pa.float32()),
        ("correct", pa.bool_()),
        ("kept", pa.bool_()),
        # of detectors: the dataset's objects on the model's model input
        ("true_boxes", pa.list_(_BOX)),
        ("true_labels", pa.list_(pa.int32())),  # as the model's outputs; -1 for classes that it doesn't know
        ("region", _BOX),  # of the object that the label is of
    ]
)


PRECISION = pa.schema(
    [
        ("model", _NAME),
        ("operator", _NAME),
        ("level", pa.int16()),
        ("map", pa.float64()),  # mean average precision over IoU 0.5 to 0.95
        ("map50", pa.float64()),  # at 0.5
    ]
)


ATTENTION = pa.schema(
    [
        ("lens", _NAME),
        ("model", _NAME),
        ("operator", _NAME),
        ("image", _NAME),
        ("level", pa.int16()),
        ("severity", pa.float64()),
        ("spot_x", pa.float64()),
        ("spot_y", pa.float64()),
        ("sigma", pa.float64()),
        ("label", pa.int32()),
        ("clean_prediction", pa.int32()),
        ("prediction", pa.int32()),
        ("failed", pa.bool_()),  # by the criterion; the others are the control
        ("clean_cell", pa.int16()),  # the fullest cell, by the paper's rule; null where a map is empty
        ("cell", pa.int16()),
        ("moved", pa.bool_()),  # those two differ
        ("clean_equal_cell", pa.int16()),  # the same with cells of one size
        ("equal_cell", pa.int16()),
        ("equal_moved", pa.bool_()),
        ("tied", pa.bool_()),  # several cells are the fullest
        ("overlap", pa.float64()),  # intersection over union of the hot pixels
        ("distance", pa.float64()),  # of the maps' centres of mass, as a share of the diagonal
    ]
)


@dataclass(frozen=True, order=True)
class Unit:
    """One piece of work that is written whole or not at all."""

    lens: str
    model: str
    operator: str
    shard: int
