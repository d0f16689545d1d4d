"""Average precision of detectors at every level, from rows: COCO's metric, computed by pycocotools."""

from __future__ import annotations

import contextlib
import importlib.util
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from brinell.errors import MissingExtra
from brinell.runs.arrow import arrow_schema
from brinell.runs.run import Run
from brinell.runs.schema import Schema

PRECISION: Schema = {
    "model": "name",
    "operator": "name",
    "level": "int16",
    "map": "float64",  # mean average precision over IoU 0.5 to 0.95
    "map50": "float64",  # at IoU 0.5
}
_LEVELS = """
    select distinct model, operator, level from rows where lens = 'profile' and detected_boxes is not null order by all
"""
_DETECTIONS = """
    select image, any_value(detected_boxes), any_value(detected_labels), any_value(detected_scores) from rows
    where lens = 'profile' and model = $model and operator = $operator and level = $level group by image
"""
_OBJECTS = """
    select image, any_value(true_boxes), any_value(true_labels) from clean join samples using (index)
    where kept and model = $model and true_boxes is not null group by image order by image
"""


@dataclass(frozen=True)
class Precision:
    """Mean average precision over IoU 0.5 to 0.95, and at IoU 0.5."""

    map: float
    map50: float


Objects = Sequence[tuple[Any, ...]]  # image, boxes and labels
Detections = Sequence[tuple[Any, ...]]  # image, boxes, labels and scores


def write_precision(run: Run) -> str | None:
    """Store the average precision of a run's detectors, once: it takes longer than other findings.

    Return advice if there are objects to compute it from, and pycocotools is not installed.
    """
    detectors = [name for name, model in run.models.items() if model.detector]
    if run.store.exists("precision.parquet") or not any(run.query(_OBJECTS, {"model": name}) for name in detectors):
        return None
    if run.sampled:
        return "no average precision: it needs every image at a level, and a budget leaves some out; rerun without --budget"
    if importlib.util.find_spec("pycocotools") is None:
        return f"no average precision: {MissingExtra('pycocotools', 'detection')}; then rerun to add it"
    run.store.write_table("precision", compute_precision(run))
    run.refresh()
    return None


def compute_precision(run: Run) -> pa.Table:
    """Return the precision of each detector, operator and level; the clean images are evaluated once."""
    objects: dict[str, Objects] = {}
    clean: dict[str, Precision] = {}
    rows = []
    for model, operator, level in run.query(_LEVELS):
        if model not in objects:
            objects[model] = run.query(_OBJECTS, {"model": model})
        if not objects[model]:
            continue
        if level or model not in clean:
            key = {"model": model, "operator": operator, "level": level}
            precision = evaluate(run.query(_DETECTIONS, key), objects[model])
        else:
            precision = clean[model]
        if level == 0:
            clean[model] = precision
        rows.append({"model": model, "operator": operator, "level": level, "map": precision.map, "map50": precision.map50})
    return pa.Table.from_pylist(rows, schema=arrow_schema(PRECISION))


def evaluate(detections: Detections, objects: Objects) -> Precision:
    """Return COCO's metrics of what was detected in images, given their objects. Objects with label -1 are ignored."""
    numbers = {image: number for number, (image, _, _) in enumerate(objects, 1)}
    annotations: list[dict[str, Any]] = [
        {"id": 0, "image_id": numbers[image], "category_id": label, "iscrowd": 0, **_box(box)}
        for image, boxes, labels in objects
        for box, label in zip(boxes, labels, strict=True)
        if label >= 0
    ]
    for number, annotation in enumerate(annotations, 1):
        annotation["id"] = number
    results = [
        (numbers[image], *_box(box)["bbox"], score, label)
        for image, boxes, labels, scores in detections
        if image in numbers
        for box, label, score in zip(boxes, labels, scores, strict=True)
    ]
    if not annotations:
        return Precision(float("nan"), float("nan"))
    if not results:
        return Precision(0.0, 0.0)
    table = _precision_table(list(numbers.values()), annotations, np.array(results, dtype=np.float64))
    return Precision(_mean(table), _mean(table[:1]))


def _precision_table(images: list[int], annotations: list[dict[str, Any]], results: np.ndarray) -> np.ndarray:
    """Return the precision by IoU, recall and class; -1 where a class does not occur."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    classes = sorted({annotation["category_id"] for annotation in annotations})
    with contextlib.redirect_stdout(io.StringIO()):  # pycocotools prints its progress
        truth = COCO()
        truth.dataset = {
            "images": [{"id": image} for image in images],
            "annotations": annotations,
            "categories": [{"id": label} for label in range(max(classes[-1], int(results[:, -1].max())) + 1)],
            "info": {},
        }
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(results), "bbox")
        evaluation.params.catIds = classes  # other classes have no objects
        evaluation.params.maxDets = [100]
        evaluation.params.areaRng = evaluation.params.areaRng[:1]  # objects of any size
        evaluation.params.areaRngLbl = evaluation.params.areaRngLbl[:1]
        evaluation.evaluate()
        evaluation.accumulate()
    table: np.ndarray = evaluation.eval["precision"][..., 0, 0]
    return table


def _mean(table: np.ndarray) -> float:
    valid = table[table > -1]
    return float(valid.mean()) if valid.size else float("nan")


def _box(box: Sequence[float]) -> dict[str, Any]:
    left, top, right, bottom = box
    return {"bbox": [left, top, right - left, bottom - top], "area": (right - left) * (bottom - top)}
