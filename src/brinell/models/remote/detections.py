"""Detectors behind HTTP: how objects are read from responses.

The objects in an image are a float32 table (M, 6), best first: the four box values as the service returns them, the index
of the class, and the score. Unused rows have the class -1 and the score 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.boxes import Detections
from brinell.classes import Classes
from brinell.config.detection import Decoding
from brinell.errors import ServiceError
from brinell.models.detection import Heads, decode_heads
from brinell.models.remote.inference import InferenceCodec
from brinell.models.remote.mapping import ResponseOptions
from brinell.models.remote.protocol import MappingCodec, read_number, unknown_class, value_at


@dataclass(frozen=True)
class MappingDetectionCodec(MappingCodec):
    """The codec of a detector that is described by a mapping."""

    max_detections: int = 100

    def scores(self, answer: Any) -> np.ndarray:
        """Read the objects at the mapping's paths."""
        return make_table(*read_objects(answer, self.response, self.classes), self.max_detections)


@dataclass(frozen=True)
class InferenceDetectionCodec(InferenceCodec):
    """The codec of a detector with the Open Inference Protocol: boxes (N, M, 4), labels (N, M) and scores (N, M)."""

    names: tuple[str, str, str] = ("boxes", "labels", "scores")
    max_detections: int = 100

    def requested_outputs(self) -> list[str]:
        """Return the names of the outputs to request."""
        return list(self.names)

    def split(self, response: Any, count: int) -> list[Any]:
        """Split the outputs into boxes, labels and scores of each image."""
        size = self.entry.most or count
        boxes, labels, scores = (self.tensor(response, name) for name in self.names)
        try:
            parts = zip(
                boxes.reshape(size, -1, 4).tolist(),
                labels.reshape(size, -1).tolist(),
                scores.reshape(size, -1).tolist(),
                strict=True,
            )
            return [list(part) for part in parts][:count]
        except ValueError:
            raise ServiceError("its outputs should be boxes (N, M, 4), labels (N, M) and scores (N, M)") from None

    def scores(self, answer: Any) -> np.ndarray:
        """Read one image's objects."""
        boxes, labels, scores = (np.array(values, np.float32) for values in answer)
        return make_table(boxes.reshape(-1, 4), labels, scores, self.max_detections)


def read_objects(answer: Any, options: ResponseOptions, classes: Classes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a response's boxes (M, 4), labels (M,) and scores (M,)."""
    assert options.boxes is not None and options.labels is not None
    names = _list_at(answer, options.labels)
    if isinstance(options.boxes, str):
        rows = _list_at(answer, options.boxes)
    else:
        rows = list(zip(*(_list_at(answer, path) for path in options.boxes), strict=False))
    scores = [1.0] * len(names)
    if isinstance(options.scores, str):
        scores = [read_number(score, options) for score in _list_at(answer, options.scores)]
    if not len(names) == len(rows) == len(scores):
        raise ServiceError(f"its response has {len(names)} labels, {len(rows)} boxes and {len(scores)} scores")
    try:
        boxes = np.array(rows, np.float32).reshape(-1, 4)
    except (ValueError, TypeError, OverflowError):
        raise ServiceError("its response should have four numbers for each box") from None
    labels = [_class_index(name, options, classes) for name in names]
    return boxes, np.array(labels, np.float32), np.array(scores, np.float32)


def make_table(boxes: np.ndarray, labels: np.ndarray, scores: np.ndarray, size: int) -> np.ndarray:
    """Return the best objects, best first, in a table with `size` rows."""
    if not (np.isfinite(boxes).all() and np.isfinite(scores).all()):
        raise ServiceError("its response has NaN instead of boxes and scores")
    order = np.argsort(-scores, kind="stable")[:size]
    table = np.zeros((size, 6), np.float32)
    table[:, 4] = -1
    table[: len(order)] = np.column_stack([boxes[order], labels[order], scores[order]])
    return table


def make_detect(
    query: Callable[[Tensor], Tensor], decoding: Decoding, height: int, width: int
) -> Callable[[Tensor], Detections]:
    """Turn a function from images to tables of objects into one to detections on a model input of a height and width."""

    def detect(images: Tensor) -> Detections:
        table = query(images)
        labels = torch.where(table[..., 4].isnan(), -1.0, table[..., 4])  # an image without an answer
        return decode_heads(Heads(table[..., :4], table[..., 5], labels), decoding, height, width)

    return detect


def _list_at(answer: Any, path: str) -> list[Any]:
    value = value_at(answer, path)
    if not isinstance(value, list):
        raise ServiceError(f"its response should have a list at {path!r}, not {value!r:.60}")
    return value


def _class_index(name: Any, options: ResponseOptions, classes: Classes) -> int:
    indices = classes.find(str(name)) or ([] if options.rest is None else classes.find(options.rest))
    if not indices:
        raise ServiceError(unknown_class(name))
    return indices[0]
