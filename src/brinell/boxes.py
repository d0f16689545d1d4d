"""Boxes of objects: float32, xyxy in pixels of a model input, where pixel i covers i to i + 1."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Detections:
    """The detections in a batch of images, best first: boxes (N, M, 4), labels int64 (N, M), scores (N, M).

    Unused entries have the label -1 and the score 0. An image without an answer has scores of NaN.
    """

    boxes: Tensor
    labels: Tensor
    scores: Tensor

    def at(self, rows: Tensor | slice) -> Detections:
        """Return the detections of some images."""
        return Detections(self.boxes[rows], self.labels[rows], self.scores[rows])

    def where(self, kept: Tensor) -> Detections:
        """Return the detections for which `kept` (N, M) holds; the other entries become unused."""
        return Detections(self.boxes, self.labels.masked_fill(~kept, -1), self.scores.masked_fill(~kept, 0))

    def class_scores(self, outputs: int) -> Tensor:
        """Return the best score of each class, float32 (N, outputs): 0 if it was not found, NaN without an answer."""
        indices = self.labels.masked_fill(self.labels < 0, outputs)
        best = torch.zeros(len(self.labels), outputs + 1, dtype=torch.float32, device=self.scores.device)
        best.scatter_reduce_(1, indices, self.scores.to(torch.float32), "amax")
        return best[:, :outputs].masked_fill(self.scores.isnan().any(1, keepdim=True), torch.nan)


def areas(boxes: Tensor) -> Tensor:
    """Return the areas of boxes (…, 4), 0 for inverted boxes."""
    sides = (boxes[..., 2:] - boxes[..., :2]).clamp(min=0)
    return sides[..., 0] * sides[..., 1]


def box_iou(first: Tensor, second: Tensor) -> Tensor:
    """Return the intersection over union of boxes (…, A, 4) with boxes (…, B, 4): (…, A, B)."""
    low = torch.maximum(first[..., :, None, :2], second[..., None, :, :2])
    high = torch.minimum(first[..., :, None, 2:], second[..., None, :, 2:])
    common = areas(torch.cat([low, high], -1))
    union = areas(first)[..., :, None] + areas(second)[..., None, :] - common
    return common / union.clamp(min=1e-9)


def clip_boxes(boxes: Tensor, height: int, width: int) -> Tensor:
    """Clip boxes to a model input; a box outside of it has no area."""
    x, y = boxes[..., 0::2].clamp(0, width), boxes[..., 1::2].clamp(0, height)
    return torch.stack([x[..., 0], y[..., 0], x[..., 1], y[..., 1]], -1)


def move_boxes(boxes: Tensor, matrices: Tensor) -> Tensor:
    """Move boxes (B, K, 4) by matrices (B, 3, 3) on (x, y, 1), and return the boxes around their new corners."""
    left, top, right, bottom = (boxes.to(torch.float64) - 0.5).unbind(-1)  # matrices count from the centres of pixels
    x, y = torch.stack([left, right, left, right], -1), torch.stack([top, top, bottom, bottom], -1)
    corners = torch.stack([x, y, torch.ones_like(x)], -1)
    mapped = torch.einsum("bij,bkcj->bkci", matrices.to(boxes.device), corners)
    points = mapped[..., :2] / mapped[..., 2:]
    return (torch.cat([points.amin(-2), points.amax(-2)], -1) + 0.5).to(boxes.dtype)
