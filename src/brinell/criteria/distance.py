"""How far a detector's detections are from those on the clean image."""

from __future__ import annotations

import torch
from torch import Tensor

from brinell.boxes import Detections, areas, box_iou, clip_boxes
from brinell.criteria.criterion import Scene

# constants of the paper's authors (their `WeightedAP`)
MATCH = 0.5  # overlap from which two boxes are the same object
CLASS_CHANGE, FALSE_AREA = 1.0, 0.1  # weights of a changed class, and of the area of new or lost boxes
ALPHA = 0.001  # boxes that cover a smaller share of the image hardly count
MIXING = (1.0, 1.0, 1.0, 0.1)  # weights of matched, new and lost boxes, and of their number


def weighted_distance(scene: Scene) -> Tensor:
    """Return the distance from the clean image's detections, float32 (N,): changed classes, new boxes and lost boxes.

    It differs from the authors' code in two points: boxes have no extra pixel, and a box that matches several is compared
    with the one it overlaps most.
    """
    now, clean = (_clip(each, scene) for each in (scene.detections, scene.clean))
    here, there = now.labels >= 0, clean.labels >= 0
    match = box_iou(now.boxes, clean.boxes).masked_fill(~(here[:, :, None] & there[:, None, :]), -1)
    best, partner = match.max(2)
    matched = best >= MATCH
    new, lost = here & ~matched, there & ~(match >= MATCH).any(1)
    changed = matched & (now.labels != clean.labels.gather(1, partner))
    of_matched = CLASS_CHANGE * changed.sum(1) / matched.sum(1).clamp(min=1)
    of_new, of_lost = _false_area(now, new, scene), _false_area(clean, lost, scene)
    wrong = new.sum(1) + lost.sum(1)
    of_number = wrong / (wrong + matched.sum(1)).clamp(min=1)
    parts = torch.stack([of_matched, of_new, of_lost, of_number])
    return (parts * parts.new_tensor(MIXING)[:, None]).sum(0) / sum(MIXING)


def own_regions(detections: Detections, labels: Tensor) -> Tensor:
    """Return the best box of each image's label, (N, 4), for images without annotated objects."""
    of_label = detections.labels == labels[:, None]
    first = of_label.to(torch.int8).argmax(1)
    return detections.boxes[torch.arange(len(labels), device=labels.device), first] * of_label.any(1, keepdim=True)


def _false_area(detections: Detections, wrong: Tensor, scene: Scene) -> Tensor:
    """Return the mean share of the area that belongs to new or lost boxes; small boxes weigh less."""
    each = areas(detections.boxes).masked_fill(detections.labels < 0, 0)
    total = each.sum(1)
    share = total / (scene.height * scene.width)
    weight = FALSE_AREA * share / (share + ALPHA)
    return weight * (each * wrong).sum(1) / total.clamp(min=1e-9) / wrong.sum(1).clamp(min=1)


def _clip(detections: Detections, scene: Scene) -> Detections:
    """Return the visible parts of detections, without those outside the model input."""
    boxes = clip_boxes(detections.boxes, scene.height, scene.width)
    return Detections(boxes, detections.labels, detections.scores).where(areas(boxes) > 0)
