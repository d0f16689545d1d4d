"""Signs that a detector's outputs are decoded wrongly, from what it finds in clean images."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import product
from typing import get_args

import torch
from torch import Tensor

from brinell.boxes import Detections
from brinell.config.detection import Decoding
from brinell.models.detection import to_corners
from brinell.models.model import Model

MOST_BOXES = 5000  # are enough to judge by
FEWEST_BOXES = 8  # fewer say nothing
MARGIN = 0.05  # of the image's side by which a box may stick out
FITTING = 0.95  # share of boxes inside the image from which a decoding fits
SUSPECT = 0.9  # share below which another decoding is tried

NOTHING_FOUND_FIX = "check how it normalises images (?mean=, ?std=), ?activation= and ?score_threshold="

FORMATS: tuple[str, ...] = get_args(Decoding.model_fields["box_format"].annotation)
UNITS: tuple[str, ...] = get_args(Decoding.model_fields["box_units"].annotation)


@dataclass
class DecodingCheck:
    """Collects what a detector finds in clean images, batch by batch, and says what looks wrong."""

    model: Model
    boxes: list[Tensor] = field(default_factory=list)
    images: int = 0
    found: int = 0  # images with a detection
    best_score: float = 0.0

    def add(self, detections: Iterable[Detections]) -> None:
        """Take in what was found, batch by batch; a classifier finds nothing."""
        for each in detections:
            scores = each.scores.nan_to_num(0)
            self.images += len(scores)
            self.best_score = max(self.best_score, float(scores.max()))
            found = (each.labels >= 0) & (scores >= self._decoding.score_threshold)
            self.found += int(found.any(1).sum())
            if sum(map(len, self.boxes)) < MOST_BOXES:
                self.boxes.append(each.boxes[found].cpu())

    def warning(self) -> str | None:
        """Return what looks wrong and what to try, in one line; None: nothing."""
        if not self.images:
            return None
        if not self.found:
            best = f"its best score is {self.best_score:.2g}, below {self._decoding.score_threshold:g}"
            what = best if self.best_score > 0 else "not even with a low score"
            return f"{self.model.name} finds nothing in any of {self.images} clean images ({what}); {NOTHING_FOUND_FIX}"
        size = self.model.preprocess.height, self.model.preprocess.width
        advice = advise_boxes(torch.cat(self.boxes), self._decoding, size)
        return None if advice is None else f"{self.model.name}: {advice}"

    @property
    def _decoding(self) -> Decoding:
        assert self.model.detector is not None
        return self.model.detector.decoding


def advise_boxes(boxes: Tensor, decoding: Decoding, size: tuple[int, int]) -> str | None:
    """Return what to try if boxes (M, 4), as decoded on a model input of a height and width, don't lie on it."""
    if len(boxes) < FEWEST_BOXES:
        return None
    own = decoding.box_format, decoding.box_units
    raw = write_boxes(boxes, *own, size)
    shares = {each: _share_inside(read_boxes(raw, *each, size), size) for each in product(FORMATS, UNITS)}
    if shares[own] >= SUSPECT:
        return None
    settings = {"box_format": own[0], "box_units": own[1]}
    # the fewest changes first; then the best share
    best = max(shares, key=lambda each: (shares[each] >= FITTING, sum(map(str.__eq__, each, own)), shares[each]))
    wrong = f"{1 - shares[own]:.0%} of its boxes lie outside the image or have no size with "
    if shares[best] < FITTING:
        used = " and ".join(f"{key}={value}" for key, value in settings.items())
        return f"{wrong}{used}; check ?box_format= and ?box_units="
    changed = {key: (old, new) for (key, old), new in zip(settings.items(), best, strict=True) if old != new}
    used = " and ".join(f"{key}={old}" for key, (old, _) in changed.items())
    fits = " and ".join(new for _, new in changed.values()) + (" fits" if len(changed) == 1 else " fit")
    return f"{wrong}{used}; {fits}: add ?{'&'.join(f'{key}={new}' for key, (_, new) in changed.items())}"


def _share_inside(boxes: Tensor, size: tuple[int, int]) -> float:
    """Return the share of boxes that have a size and lie on the model input."""
    height, width = size
    low, high = boxes[:, :2], boxes[:, 2:]
    sides = torch.tensor([width, height])
    inside = (low >= -MARGIN * sides) & (high <= (1 + MARGIN) * sides) & (high - low >= 1)
    return float(inside.all(1).to(torch.float32).mean())


def write_boxes(boxes: Tensor, box_format: str, units: str, size: tuple[int, int]) -> Tensor:
    """Return boxes on a model input of a height and width as a network writes them."""
    low, high = boxes[:, :2], boxes[:, 2:]
    first = {"xyxy": low, "xywh": low, "cxcywh": (low + high) / 2}[box_format]
    raw = torch.cat([first, high if box_format == "xyxy" else high - low], 1)
    return raw / torch.tensor([size[1], size[0]] * 2) if units == "relative" else raw


def read_boxes(raw: Tensor, box_format: str, units: str, size: tuple[int, int]) -> Tensor:
    """Return boxes that a network wrote as corners on a model input of a height and width."""
    boxes = to_corners(raw, box_format)
    return boxes * torch.tensor([size[1], size[0]] * 2) if units == "relative" else boxes
