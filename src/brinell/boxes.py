"""Boxes of objects: float32, xyxy in pixels of a model input, where pixel i reaches from i to i + 1."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Detections:
    """What was found in a batch of images, the best first: boxes (N, M, 4), labels int64 (N, M), scores (N, M).

    Places that are not needed have the label -1 and the score 0. An image without an answer has scores of NaN.
    """

    boxes: Tensor
    labels: Tensor
    scores: Tensor

    def at(self, rows: Tensor | slice) -> Detections:
        """Those of some images."""
        return Detections(self.boxes[rows], self.labels[rows], self.scores[rows])

    def where(self, kept: Tensor) -> Detections:
        """Those for which `kept` (N, M) holds; the places of the others are free."""
        return Detections(self.boxes, self.labels.masked_fill(~kept, -1), self.scores.masked_fill(~kept, 0))

    def class_scores(self, outputs: int) -> Tensor:
        """The best score of each class, float32 (N, outputs), 0 where it was not found; NaN where there is no answer."""
        places = self.labels.masked_fill(self.labels < 0, outputs)
        best = torch.zeros(len(self.labels), outputs + 1, dtype=torch.float32, device=self.scores.device)
        best.scatter_reduce_(1, places, self.scores.to(torch.float32), "amax")
        return best[:, :outputs].masked_fill(self.scores.isnan().any(1, keepdim=True), torch.nan)


def areas(boxes: Tensor) -> Tensor:
    """Areas of boxes (…, 4), 0 for those that are inside out."""
    sides = (boxes[..., 2:] - boxes[..., :2]).clamp(min=0)
    return sides[..., 0] * sides[..., 1]


def overlaps(first: Tensor, second: Tensor) -> Tensor:
    """Intersection over union of boxes (…, A, 4) with boxes (…, B, 4): (…, A, B)."""
    low = torch.maximum(first[..., :, None, :2], second[..., None, :, :2])
    high = torch.minimum(first[..., :, None, 2:], second[..., None, :, 2:])
    common = areas(torch.cat([low, high], -1))
    union = areas(first)[..., :, None] + areas(second)[..., None, :] - common
    return common / union.clamp(min=1e-9)


def clipped(boxes: Tensor, height: int, width: int) -> Tensor:
    """The parts of boxes that lie on a model input; one that lies outside has no area."""
    x, y = boxes[..., 0::2].clamp(0, width), boxes[..., 1::2].clamp(0, height)
    return torch.stack([x[..., 0], y[..., 0], x[..., 1], y[..., 1]], -1)


def moved(boxes: Tensor, matrices: Tensor) -> Tensor:
    """Boxes (B, K, 4) under matrices (B, 3, 3), which take a pixel's (x, y, 1) to where it goes: around the new corners."""
    left, top, right, bottom = (boxes.to(torch.float64) - 0.5).unbind(-1)  # a matrix counts from the middle of a pixel
    x, y = torch.stack([left, right, left, right], -1), torch.stack([top, top, bottom, bottom], -1)
    corners = torch.stack([x, y, torch.ones_like(x)], -1)
    where = torch.einsum("bij,bkcj->bkci", matrices.to(boxes.device), corners)
    places = where[..., :2] / where[..., 2:]
    return (torch.cat([places.amin(-2), places.amax(-2)], -1) + 0.5).to(boxes.dtype)
