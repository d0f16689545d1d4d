"""Where a detector finds objects in pictures, and what became of those of the clean image. Imports torch."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch

from brinell.boxes import Detections
from brinell.criteria.criterion import Answer
from brinell.engine.evaluator import Evaluator
from brinell.engine.replay import Replay, render
from brinell.engine.threads import torch_alone
from brinell.errors import ModelError
from brinell.marks import Mark
from brinell.models.marking import marker_of
from brinell.models.model import Model

Marks = list[dict[str, Any]]  # boxes as shares of width and height, texts and kinds


def mark_clean(evaluator: Evaluator) -> Marks:
    """Return what a detector finds in the clean image of an evaluator; nothing for classifiers."""
    if evaluator.model.detector is None:
        return []
    found = evaluator.clean.detections
    assert found is not None
    return as_data(marker_of(evaluator.model).mark_clean(found.at(slice(0, 1)), _label(evaluator)))


def mark_changed(evaluator: Evaluator, answer: Answer, detections: Detections) -> list[Marks]:
    """Return what a detector found in each changed image, next to what it finds in the clean one, moved with it."""
    marker, before = marker_of(evaluator.model), answer.scene.clean
    rows = (slice(number, number + 1) for number in range(len(detections.labels)))
    return [as_data(marker.mark_changed(detections.at(row), before.at(row), _label(evaluator))) for row in rows]


def mark_pair(evaluator: Evaluator, replay: Replay, counterpart: Replay | None) -> dict[str, Marks]:
    """Return a detector's boxes on the image of a row and on the one it is compared with (default: the clean image)."""
    with torch_alone():
        answer, detections = _answer(evaluator, replay)
        if counterpart is None:
            return {"clean": mark_clean(evaluator), "changed": mark_changed(evaluator, answer, detections)[0]}
        _, before = _answer(evaluator, counterpart)
    marker, first = marker_of(evaluator.model), _label(evaluator)
    return {
        "clean": as_data(marker.mark_clean(before, first)),
        "changed": as_data(marker.mark_changed(detections, before, first)),
    }


def require_detector(model: Model) -> None:
    """Refuse a model that finds no boxes."""
    if model.detector is None:
        raise ModelError(f"model {model.name} is a classifier and finds no boxes")


def as_data(marks: tuple[Mark, ...]) -> Marks:
    """Return marks as plain data; corners in thousandths are as exact as a screen."""
    return [{**asdict(mark), "box": [round(corner, 4) for corner in mark.box]} for mark in marks]


def _answer(evaluator: Evaluator, replay: Replay) -> tuple[Answer, Detections]:
    ((_, pixels),) = render(evaluator.renderer, [replay], {replay.image: 0}, batch=1)
    inputs = pixels[None].to(evaluator.model.device)
    parameters = torch.tensor([replay.parameters], dtype=torch.float64)
    answer, detections = evaluator.answer(inputs, torch.tensor([0]), replay.change, parameters)
    assert detections is not None
    return answer, detections


def _label(evaluator: Evaluator) -> tuple[int, ...]:
    return (int(evaluator.labels[0]),)
