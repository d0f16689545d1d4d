"""The object that gives an image its label: the largest of the preferred class, or of any class, that is large enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from brinell.boxes import areas, clip_boxes
from brinell.classes import Classes
from brinell.config.data import DataOptions
from brinell.errors import DataError
from brinell.registry import nearest
from brinell.types import Dataset, Label, Sample


@dataclass(frozen=True)
class ObjectRule:
    """Which object counts: its class by name or number (None: any), and the share of the image it must cover."""

    preferred: str | None = None
    min_area: float = 0.0

    @property
    def missing(self) -> str:
        """The reason why an image without such an object is left out."""
        size = f" that covers {100 * self.min_area:g} % of the image" if self.min_area else ""
        return f"no {self.preferred or 'object'}{size}"

    def check(self, dataset: Dataset) -> None:
        """Raise if the dataset lists its classes and the preferred one is not among them."""
        if self.preferred is None or dataset.classes is None or _indices(self.preferred, dataset.classes):
            return
        hint = nearest(self.preferred, list(dataset.classes))
        raise DataError(f"{dataset.name} has no class {self.preferred!r} to prefer; {hint}")

    def index(self, sample: Sample, classes: tuple[str, ...] | None) -> int | None:
        """Return the index of the object's box in a sample, or None if there is no such object."""
        if sample.boxes is None or len(sample.boxes) == 0:
            return None
        height, width = sample.image.shape[1:]
        shares = areas(clip_boxes(sample.boxes, height, width)) / (height * width)
        fits = torch.tensor([self._accepts(label, classes) for label in sample.box_labels])
        shares = shares.masked_fill(~fits, -1)
        index = int(shares.argmax())
        return index if float(shares[index]) >= self.min_area else None

    def _accepts(self, label: Label, classes: tuple[str, ...] | None) -> bool:
        if self.preferred is None:
            return True
        if isinstance(label, int) and classes is not None:
            return label in _indices(self.preferred, classes)
        return bool(Classes((str(label),)).find(self.preferred))


def object_rule(options: DataOptions, detectors: bool) -> ObjectRule | None:
    """Return which object gives an image its label, or None if labels are used as they are in the dataset."""
    chosen = options.preferred is not None or options.min_area is not None
    if chosen or (detectors and options.labels != "prediction"):
        return ObjectRule(options.preferred, options.min_area or 0.0)
    return None


def _indices(preferred: str, classes: tuple[str, ...]) -> list[int]:
    found = Classes(classes).find(preferred)
    return found or ([int(preferred)] if preferred.isdecimal() and int(preferred) < len(classes) else [])


def read_objects(objects: Any, name: str) -> tuple[Tensor | None, tuple[Label, ...]]:
    """Return boxes (xyxy) and labels from metadata as Hugging Face and COCO write them: `bbox` (x, y, width, height), and
    `category` or `categories`, names or numbers. Without objects, None.
    """
    if not isinstance(objects, Mapping) or "bbox" not in objects:
        return None, ()
    labels = next((objects[key] for key in ("categories", "category", "label", "labels") if key in objects), None)
    try:
        boxes = torch.tensor(objects["bbox"], dtype=torch.float32).reshape(-1, 4)
    except (TypeError, ValueError, RuntimeError):
        raise DataError(f"{name}: expected boxes of four numbers (x, y, width, height), got {objects['bbox']!r}") from None
    if labels is None or len(labels) != len(boxes):
        raise DataError(f"{name}: expected a category for each of {len(boxes)} boxes, got {labels!r}")
    boxes[:, 2:] += boxes[:, :2]
    return boxes, tuple(label if isinstance(label, int) else str(label) for label in labels)
