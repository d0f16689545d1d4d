"""Criteria for detectors. Only boxes that count as found are looked at; see `Detector`.

Where a property moves the image, regions and the clean image's detections have moved with it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from brinell.boxes import Detections, areas, clipped, overlaps
from brinell.criteria.criterion import CRITERIA, Answer, Criterion, Scene

# of the paper's authors (their `WeightedAP`)
MATCH = 0.5  # overlap of the same object
CLASS_CHANGE, FALSE_AREA = 1.0, 0.1  # weights of a changed class, and of the area of boxes that came or went
ALPHA = 0.001  # boxes that cover less of the image than this hardly count
MIXING = (1.0, 1.0, 1.0, 0.1)  # of matched, new and lost boxes, and of their number
DISTANCE = 1e-4


@CRITERIA.register("target_class_missing")
def target_class_missing(target: int | None = None) -> Criterion:
    """No object of the class (the label's, unless given by name or index) is found."""

    def missing(answer: Answer) -> Tensor:
        return ~_of_target(answer.scene, target).any(1)

    return Criterion(_called("target_class_missing", target), missing, detections=True)


@CRITERIA.register("regional_target_class_missing")
def regional_target_class_missing(overlap: float = 0) -> Criterion:
    """No object of the label's class is found where the preferred object is, with more than this overlap (IoU)."""

    def missing(answer: Answer) -> Tensor:
        scene = answer.scene
        there = overlaps(scene.detections.boxes, scene.regions[:, None])[..., 0] > overlap
        return ~(_of_target(scene, None) & there).any(1)

    return Criterion(f"regional_target_class_missing({overlap:g})", missing, detections=True)


@CRITERIA.register("target_class_boost")
def target_class_boost(target: int, by: float = 0.3) -> Criterion:
    """The best score of a class, given by name or index, is higher than on the clean image by more than this."""

    def boosted(answer: Answer) -> Tensor:
        return answer.probabilities[:, target] - answer.scene.clean_probabilities[:, target] > by

    return Criterion(f"target_class_boost({target}, {by:g})", boosted, detections=True)


@CRITERIA.register("weighted_ap")
def weighted_ap(distance: float = DISTANCE) -> Criterion:
    """What is found differs from what is found on the clean image by more than this weighted distance."""
    return Criterion(
        f"weighted_ap({distance:g})", lambda answer: weighted_distance(answer.scene) > distance, detections=True
    )


def weighted_distance(scene: Scene) -> Tensor:
    """How far detections are from the clean image's, float32 (N,): classes that changed, boxes that came, boxes that went.

    As the paper's authors have it, with two differences: boxes have no extra pixel, and a box that matches several is
    compared with the one that it overlaps most.
    """
    now, clean = (_inside(each, scene) for each in (scene.detections, scene.clean))
    here, there = now.labels >= 0, clean.labels >= 0
    match = overlaps(now.boxes, clean.boxes).masked_fill(~(here[:, :, None] & there[:, None, :]), -1)
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
    """The best box of each image's label, (N, 4), for images whose objects nobody marked."""
    its = detections.labels == labels[:, None]
    first = its.to(torch.int8).argmax(1)
    return detections.boxes[torch.arange(len(labels), device=labels.device), first] * its.any(1, keepdim=True)


def _false_area(detections: Detections, wrong: Tensor, scene: Scene) -> Tensor:
    """The mean share of the area that boxes have which shouldn't be there, or should; of small ones less."""
    each = areas(detections.boxes).masked_fill(detections.labels < 0, 0)
    total = each.sum(1)
    share = total / (scene.height * scene.width)
    weight = FALSE_AREA * share / (share + ALPHA)
    return weight * (each * wrong).sum(1) / total.clamp(min=1e-9) / wrong.sum(1).clamp(min=1)


def _inside(detections: Detections, scene: Scene) -> Detections:
    """What is seen of detections on the model input."""
    boxes = clipped(detections.boxes, scene.height, scene.width)
    return Detections(boxes, detections.labels, detections.scores).where(areas(boxes) > 0)


def _of_target(scene: Scene, target: int | None) -> Tensor:
    wanted = scene.labels[:, None] if target is None else target
    return scene.detections.labels == wanted


def _called(name: str, target: int | None) -> str:
    return name if target is None else f"{name}({target})"
