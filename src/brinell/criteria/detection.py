"""Criteria for detectors. They consider only detections that count as found; see `Detector`.

If a property moves the image, regions and the detections on the clean image have moved with it. Importing this module does
not import torch, so that criteria can be listed quickly: what needs it is imported when a criterion is evaluated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brinell.criteria.criterion import CRITERIA, Answer, Criterion, Scene

if TYPE_CHECKING:
    from torch import Tensor

DISTANCE = 1e-4  # of the paper's authors (their `WeightedAP`)


@CRITERIA.register("target_class_missing")
def target_class_missing(target: int | None = None) -> Criterion:
    """No object of the target class is found (default: the label's class; given by name or index)."""

    def is_missing(answer: Answer) -> Tensor:
        return ~_of_target(answer.scene, target).any(1)

    name = "target_class_missing" if target is None else f"target_class_missing({target})"
    return Criterion(name, is_missing, detections=True)


@CRITERIA.register("regional_target_class_missing")
def regional_target_class_missing(overlap: float = 0) -> Criterion:
    """No object of the label's class is found that overlaps the preferred object by more than this (IoU)."""

    def is_missing(answer: Answer) -> Tensor:
        from brinell.boxes import box_iou

        scene = answer.scene
        in_region = box_iou(scene.detections.boxes, scene.regions[:, None])[..., 0] > overlap
        return ~(_of_target(scene, None) & in_region).any(1)

    return Criterion(f"regional_target_class_missing({overlap:g})", is_missing, detections=True)


@CRITERIA.register("target_class_boost")
def target_class_boost(target: int, by: float = 0.3) -> Criterion:
    """The best score of the target class, given by name or index, is higher than on the clean image by more than this."""

    def is_boosted(answer: Answer) -> Tensor:
        return answer.probabilities[:, target] - answer.scene.clean_probabilities[:, target] > by

    return Criterion(f"target_class_boost({target}, {by:g})", is_boosted, detections=True)


@CRITERIA.register("weighted_ap")
def weighted_ap(distance: float = DISTANCE) -> Criterion:
    """The detections differ from those on the clean image by more than this weighted distance."""

    def is_distant(answer: Answer) -> Tensor:
        from brinell.criteria.distance import weighted_distance

        return weighted_distance(answer.scene) > distance

    return Criterion(f"weighted_ap({distance:g})", is_distant, detections=True)


def _of_target(scene: Scene, target: int | None) -> Tensor:
    wanted = scene.labels[:, None] if target is None else target
    return scene.detections.labels == wanted
