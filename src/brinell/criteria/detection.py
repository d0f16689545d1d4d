"""Criteria for detectors. They consider only detections that count as found; see `Detector`.

If a property moves the image, regions and the detections on the clean image have moved with it. Importing this module does
not import torch, so that criteria can be listed quickly: what needs it is imported when a criterion is evaluated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brinell.criteria.criterion import (
    BELOW_THRESHOLD,
    BOX_MOVED,
    CLASS_CHANGED,
    CRITERIA,
    DETECTIONS_CHANGED,
    LOST,
    SCORE_ROSE,
    Answer,
    Criterion,
    Namer,
    Rule,
    Scene,
    format_compared,
)

if TYPE_CHECKING:
    from torch import Tensor

SAME_PLACE = 0.5  # overlap (IoU) from which two boxes are the same object, in explanations
DISTANCE = 1e-4  # of the paper's authors (their `WeightedAP`)


@CRITERIA.register("target_class_missing")
def target_class_missing(target: int | None = None) -> Criterion:
    """No object of the target class is found (default: the label's class; given by name or index)."""

    def is_missing(answer: Answer) -> Tensor:
        return ~_of_target(answer.scene, target).any(1)

    return Criterion(
        "target_class_missing" if target is None else f"target_class_missing({target})",
        is_missing,
        detections=True,
        cause=lambda answer: _why_missing(answer, target),
        explain=lambda answer, name: _explain_missing(answer, name, target),
    )


@CRITERIA.register("regional_target_class_missing")
def regional_target_class_missing(overlap: float = 0) -> Criterion:
    """No object of the label's class is found that overlaps the preferred object by more than this (IoU)."""

    def is_missing(answer: Answer) -> Tensor:
        from brinell.boxes import box_iou

        scene = answer.scene
        in_region = box_iou(scene.detections.boxes, scene.regions[:, None])[..., 0] > overlap
        return ~(_of_target(scene, None) & in_region).any(1)

    def cause(answer: Answer) -> Tensor:
        return _why_missing(answer, None).masked_fill(_of_target(answer.scene, None).any(1), BOX_MOVED)

    def explain(answer: Answer, name: Namer) -> list[str]:
        missing = _explain_missing(answer, name, None)
        nearest = (_overlaps(answer.scene) * _of_target(answer.scene, None)).amax(1)
        moved = (f"box moved: IoU {format_compared(iou, overlap)}, required above {overlap:g}" for iou in nearest.tolist())
        each = zip(cause(answer).tolist(), moved, missing, strict=True)
        return [first if why == BOX_MOVED else second for why, first, second in each]

    name = f"regional_target_class_missing({overlap:g})"
    return Criterion(name, is_missing, detections=True, cause=cause, explain=explain)


@CRITERIA.register("target_class_boost")
def target_class_boost(target: int, by: float = 0.3) -> Criterion:
    """The best score of the target class, given by name or index, is higher than on the clean image by more than this."""

    def is_boosted(answer: Answer) -> Tensor:
        return answer.probabilities[:, target] - answer.scene.clean_probabilities[:, target] > by

    def explain(answer: Answer, name: Namer) -> list[str]:
        before, now = answer.scene.clean_probabilities[:, target].tolist(), answer.probabilities[:, target].tolist()
        return [
            f"score of {name(target)} rose from {old:.2f} to {new:.2f}, by more than {by:g}"
            for old, new in zip(before, now, strict=True)
        ]

    name = f"target_class_boost({target}, {by:g})"
    return Criterion(name, is_boosted, detections=True, cause=_always(SCORE_ROSE), explain=explain)


@CRITERIA.register("weighted_ap")
def weighted_ap(distance: float = DISTANCE) -> Criterion:
    """The detections differ from those on the clean image by more than this weighted distance."""

    def is_distant(answer: Answer) -> Tensor:
        from brinell.criteria.distance import weighted_distance

        return weighted_distance(answer.scene) > distance

    def explain(answer: Answer, name: Namer) -> list[str]:
        from brinell.criteria.distance import weighted_distance

        distances = weighted_distance(answer.scene).tolist()
        return [f"detections changed: weighted distance {each:.2g}, above {distance:g}" for each in distances]

    cause = _always(DETECTIONS_CHANGED)
    return Criterion(f"weighted_ap({distance:g})", is_distant, detections=True, cause=cause, explain=explain)


def _of_target(scene: Scene, target: int | None) -> Tensor:
    wanted = scene.labels[:, None] if target is None else target
    return scene.detections.labels == wanted


def _always(cause: int) -> Rule:
    """Return the same cause for all images."""
    return lambda answer: answer.verdict.prediction.new_full(answer.verdict.prediction.shape, cause)


def _why_missing(answer: Answer, target: int | None) -> Tensor:
    """Return why a class is missing: another class was found in its place, its score is too low, or it is lost."""
    scores = _scores(answer, target)
    cause = scores.new_full(scores.shape, LOST).masked_fill(scores > 0, BELOW_THRESHOLD)
    if target is None:
        cause = cause.masked_fill(_rivals(answer.scene) >= 0, CLASS_CHANGED)
    return cause.long()


def _explain_missing(answer: Answer, name: Namer, target: int | None) -> list[str]:
    """Return why a class is missing, in words."""
    limit = answer.scene.score_threshold
    wanted = answer.scene.labels.tolist() if target is None else [target] * len(answer.scene.labels)
    columns = (_why_missing(answer, target), _scores(answer, target), _rivals(answer.scene))
    texts = []
    for label, cause, score, rival in zip(wanted, *(each.tolist() for each in columns), strict=True):
        weak = f"score of {name(label)} {format_compared(score, limit)} is below the threshold {limit:g}"
        if cause == CLASS_CHANGED:
            texts.append(f"class changed to {name(rival)}" + (f" ({weak})" if score > 0 else ""))
        else:
            texts.append(weak if cause == BELOW_THRESHOLD else f"{name(label)} lost")
    return texts


def _scores(answer: Answer, target: int | None) -> Tensor:
    """Return the best score of the target, weak detections included, (N,)."""
    wanted = answer.scene.labels if target is None else answer.scene.labels.new_full(answer.scene.labels.shape, target)
    return answer.probabilities.gather(1, wanted[:, None])[:, 0]


def _rivals(scene: Scene) -> Tensor:
    """Return the class that was found where the preferred object is, (N,); -1: none, or its own."""
    there = (_overlaps(scene) >= SAME_PLACE) & (scene.detections.labels >= 0) & ~_of_target(scene, None)
    best = (scene.detections.scores * there).argmax(1)
    return scene.detections.labels.gather(1, best[:, None])[:, 0].masked_fill(~there.any(1), -1)


def _overlaps(scene: Scene) -> Tensor:
    """Return how much each detection overlaps the preferred object, (N, M)."""
    from brinell.boxes import box_iou

    return box_iou(scene.detections.boxes, scene.regions[:, None])[..., 0]
