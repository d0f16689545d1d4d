"""Detectors behind HTTP: what is read from an answer about objects.

What was found in an image is float32 (M, 6), the best first: a box's four numbers as the service writes them, the place of
its label among the classes, and its score. Free places have the label -1 and the score 0.
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
from brinell.models.detection import Heads, decoded
from brinell.models.remote.inference import OpenInference
from brinell.models.remote.mapping import ResponseOptions
from brinell.models.remote.protocol import Mapped, at, number


@dataclass(frozen=True)
class MappedObjects(Mapped):
    """A service that finds objects, told by a mapping."""

    most_found: int = 100

    def scores(self, part: Any) -> np.ndarray:
        """The objects at the mapping's paths."""
        return ranked(*objects_of(part, self.response, self.classes), self.most_found)


@dataclass(frozen=True)
class OpenObjects(OpenInference):
    """A detector that is asked by the Open Inference Protocol: boxes (N, M, 4), labels (N, M) and scores (N, M)."""

    names: tuple[str, str, str] = ("boxes", "labels", "scores")
    most_found: int = 100

    def wanted(self) -> list[str]:
        """The outputs that are asked for."""
        return list(self.names)

    def split(self, answer: Any, count: int) -> list[Any]:
        """For each image its boxes, labels and scores."""
        size = self.entry.most or count
        boxes, labels, scores = (self.tensor(answer, name) for name in self.names)
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

    def scores(self, part: Any) -> np.ndarray:
        """One image's objects."""
        boxes, labels, scores = (np.array(values, np.float32) for values in part)
        return ranked(boxes.reshape(-1, 4), labels, scores, self.most_found)


def objects_of(answer: Any, options: ResponseOptions, classes: Classes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """An answer's boxes (M, 4), labels (M,) and scores (M,)."""
    assert options.boxes is not None and options.labels is not None
    names = _list(at(answer, options.labels), options.labels)
    if isinstance(options.boxes, str):
        rows = _list(at(answer, options.boxes), options.boxes)
    else:
        rows = list(zip(*(_list(at(answer, path), path) for path in options.boxes), strict=False))
    scores = [1.0] * len(names)
    if isinstance(options.scores, str):
        scores = [number(score, options) for score in _list(at(answer, options.scores), options.scores)]
    if not len(names) == len(rows) == len(scores):
        raise ServiceError(f"its answer has {len(names)} labels, {len(rows)} boxes and {len(scores)} scores")
    try:
        boxes = np.array(rows, np.float32).reshape(-1, 4)
    except (ValueError, TypeError):
        raise ServiceError("its answer should have four numbers for each box") from None
    return boxes, np.array([_place(name, options, classes) for name in names], np.float32), np.array(scores, np.float32)


def ranked(boxes: np.ndarray, labels: np.ndarray, scores: np.ndarray, most: int) -> np.ndarray:
    """The best so many objects, the best first, in a table of that many rows."""
    if not (np.isfinite(boxes).all() and np.isfinite(scores).all()):
        raise ServiceError("its answer has NaN where boxes and scores should be")
    order = np.argsort(-scores, kind="stable")[:most]
    table = np.zeros((most, 6), np.float32)
    table[:, 4] = -1
    table[: len(order)] = np.column_stack([boxes[order], labels[order], scores[order]])
    return table


def detecting(ask: Callable[[Tensor], Tensor], how: Decoding, height: int, width: int) -> Callable[[Tensor], Detections]:
    """A function from images to tables of objects as one to detections on a model input of that size."""

    def detect(images: Tensor) -> Detections:
        table = ask(images)
        labels = torch.where(table[..., 4].isnan(), -1.0, table[..., 4])  # nobody knows what is in such an image
        return decoded(Heads(table[..., :4], table[..., 5], labels), how, height, width)

    return detect


def _list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list):
        raise ServiceError(f"its answer should have a list at {path!r}, not {value!r:.60}")
    return value


def _place(name: Any, options: ResponseOptions, classes: Classes) -> int:
    places = classes.find(str(name)) or ([] if options.rest is None else classes.find(options.rest))
    if not places:
        raise ServiceError(
            f"its answer names {name!r}, which is none of the mapping's classes; add it there, or let `rest` name the "
            "class of all others"
        )
    return places[0]
