"""The object that an image is about: of the preferred class, or of any, the largest that is large enough."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from brinell.boxes import areas, clipped
from brinell.classes import Classes
from brinell.errors import DataError
from brinell.registry import nearest
from brinell.types import Dataset, Label, Sample


@dataclass(frozen=True)
class ObjectRule:
    """Which object is meant: the class's name or number (None: any), and the share of the image that it covers at least."""

    preferred: str | None = None
    min_area: float = 0.0

    @property
    def missing(self) -> str:
        """What is said of an image that has no such object."""
        size = f" that covers {100 * self.min_area:g} % of the image" if self.min_area else ""
        return f"no {self.preferred or 'object'}{size}"

    def check(self, dataset: Dataset) -> None:
        """Raise if the dataset lists its classes and the preferred one is none of them."""
        if self.preferred is None or dataset.classes is None or _indices(self.preferred, dataset.classes):
            return
        hint = nearest(self.preferred, list(dataset.classes))
        raise DataError(f"{dataset.name} has no class {self.preferred!r} to prefer; {hint}")

    def place(self, sample: Sample, classes: tuple[str, ...] | None) -> int | None:
        """Which of a sample's boxes it is, or None."""
        if sample.boxes is None or len(sample.boxes) == 0:
            return None
        height, width = sample.image.shape[1:]
        shares = areas(clipped(sample.boxes, height, width)) / (height * width)
        fits = torch.tensor([self._means(label, classes) for label in sample.box_labels])
        shares = shares.masked_fill(~fits, -1)
        place = int(shares.argmax())
        return place if float(shares[place]) >= self.min_area else None

    def _means(self, label: Label, classes: tuple[str, ...] | None) -> bool:
        if self.preferred is None:
            return True
        if isinstance(label, int) and classes is not None:
            return label in _indices(self.preferred, classes)
        return bool(Classes((str(label),)).find(self.preferred))


def _indices(preferred: str, classes: tuple[str, ...]) -> list[int]:
    found = Classes(classes).find(preferred)
    return found or ([int(preferred)] if preferred.isdigit() and int(preferred) < len(classes) else [])
