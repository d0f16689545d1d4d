"""Our datasets as MAITE's: images (C, H, W) of uint8, one-hot labels or boxes, and metadata with an id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from brinell import types
from brinell.classes import Classes
from brinell.errors import LabelError


@dataclass(frozen=True)
class Target:
    """An object-detection target: boxes (K, 4) as xyxy in pixels, labels (K,) and scores (K,)."""

    boxes: np.ndarray
    labels: np.ndarray
    scores: np.ndarray


class Dataset:
    """A dataset as MAITE's protocols for image classification or, if images have boxes, object detection describe it.

    `classes` are needed where labels are names and the dataset doesn't list its classes.
    """

    def __init__(self, dataset: types.Dataset, classes: tuple[str, ...] | None = None) -> None:
        self.dataset = dataset
        self.classes = classes or dataset.classes
        self.metadata: dict[str, Any] = {"id": dataset.name}
        if self.classes is not None:
            self.metadata["index2label"] = dict(enumerate(self.classes))

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, ind: int, /) -> tuple[np.ndarray, Any, dict[str, Any]]:
        if not 0 <= ind < len(self):
            raise IndexError(f"there is no image {ind} in a dataset of {len(self)}")
        sample = self.dataset[ind]
        metadata = {"id": sample.name}
        if sample.boxes is None:
            return sample.image.numpy(), self._one_hot(sample), metadata
        labels = np.array([self._index(label, sample.name) for label in sample.box_labels], np.int64)
        return sample.image.numpy(), Target(sample.boxes.numpy(), labels, np.ones(len(labels), np.float32)), metadata

    def _one_hot(self, sample: types.Sample) -> np.ndarray:
        if sample.label is None or self.classes is None:
            what = "no label" if sample.label is None else f"the label {sample.label!r}, and its classes are unknown"
            raise LabelError(f"{sample.name} has {what}; MAITE's targets need labels and classes: Dataset(…, classes=…)")
        target = np.zeros(len(self.classes), np.float32)
        target[self._index(sample.label, sample.name)] = 1
        return target

    def _index(self, label: types.Label, name: str) -> int:
        if isinstance(label, int):
            return label
        found = Classes(self.classes).find(label) if self.classes is not None else []
        if not found:
            raise LabelError(
                f"{name} has the label {label!r}, which is not a known class; name them: Dataset(…, classes=…)"
            )
        return found[0]
