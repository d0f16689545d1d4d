"""Average precision of detectors at every level, from rows: COCO's, by pycocotools."""

from __future__ import annotations

import contextlib
import importlib.util
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from brinell.errors import MissingExtra
from brinell.runs.schema import NAME

PRECISION = pa.schema(
    [
        ("model", NAME),
        ("operator", NAME),
        ("level", pa.int16()),
        ("map", pa.float64()),  # mean average precision over IoU 0.5 to 0.95
        ("map50", pa.float64()),  # at 0.5
    ]
)
_LEVELS = """
    select distinct model, operator, level from rows where lens = 'profile' and detected_boxes is not null order by all
"""
_FOUND = """
    select image, any_value(detected_boxes), any_value(detected_labels), any_value(detected_scores) from rows
    where lens = 'profile' and model = $model and operator = $operator and level = $level group by image
"""
_TRUTH = """
    select image, any_value(true_boxes), any_value(true_labels) from clean join samples using (index)
    where kept and model = $model and true_boxes is not null group by image order by image
"""


@dataclass(frozen=True)
class Precision:
    """Mean average precision over IoU 0.5 to 0.95, and at 0.5."""

    map: float
    map50: float


Marked = tuple[str, list[Sequence[float]], list[int]]
Found = tuple[str, list[Sequence[float]], list[int], list[float]]


def precisions(connection: duckdb.DuckDBPyConnection) -> pa.Table:
    """For each detector, operator and level of a run's profiles; the clean images are evaluated once."""
    truths: dict[str, list[Marked]] = {}
    known: dict[str, Precision] = {}
    rows = []
    for model, operator, level in connection.execute(_LEVELS).fetchall():
        if model not in truths:
            truths[model] = connection.execute(_TRUTH, {"model": model}).fetchall()
        if not truths[model]:
            continue
        if level or model not in known:
            asked = {"model": model, "operator": operator, "level": level}
            measured = precision(connection.execute(_FOUND, asked).fetchall(), truths[model])
        else:
            measured = known[model]
        if level == 0:
            known[model] = measured
        rows.append({"model": model, "operator": operator, "level": level, "map": measured.map, "map50": measured.map50})
    return pa.Table.from_pylist(rows, schema=PRECISION)


def require_evaluation() -> None:
    """Raise if what precision is computed with is not there."""
    if importlib.util.find_spec("pycocotools") is None:
        raise MissingExtra("pycocotools", "detection")


def precision(found: Sequence[Found], marked: Sequence[Marked]) -> Precision:
    """COCO's figures of what was found in images, against what is marked in them. Labels of -1 don't count."""
    require_evaluation()
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    places = {image: place for place, (image, _, _) in enumerate(marked, 1)}
    objects = [
        {"id": 0, "image_id": places[image], "category_id": label, "iscrowd": 0, **_box(box)}
        for image, boxes, labels in marked
        for box, label in zip(boxes, labels, strict=True)
        if label >= 0
    ]
    for number, each in enumerate(objects, 1):
        each["id"] = number
    answers = [
        (places[image], *_box(box)["bbox"], score, label)
        for image, boxes, labels, scores in found
        if image in places
        for box, label, score in zip(boxes, labels, scores, strict=True)
    ]
    classes = sorted({each["category_id"] for each in objects})
    if not objects or not answers:
        return Precision(0.0 if objects else float("nan"), 0.0 if objects else float("nan"))
    with contextlib.redirect_stdout(io.StringIO()):  # it tells its progress
        truth = COCO()
        truth.dataset = {
            "images": [{"id": place} for place in places.values()],
            "annotations": objects,
            "categories": [{"id": label} for label in range(max(classes[-1], max(int(row[-1]) for row in answers)) + 1)],
            "info": {},
        }
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(np.array(answers, dtype=np.float64)), "bbox")
        evaluation.params.catIds = classes  # others have nothing to be found
        evaluation.params.maxDets = [100]
        evaluation.params.areaRng = evaluation.params.areaRng[:1]  # objects of any size
        evaluation.params.areaRngLbl = evaluation.params.areaRngLbl[:1]
        evaluation.evaluate()
        evaluation.accumulate()
    table = evaluation.eval["precision"][..., 0, 0]  # overlap × recall × class; -1 where a class is not there
    return Precision(_mean(table), _mean(table[:1]))


def _mean(table: np.ndarray) -> float:
    known = table[table > -1]
    return float(known.mean()) if known.size else float("nan")


def _box(box: Sequence[float]) -> dict[str, Any]:
    left, top, right, bottom = box
    return {"bbox": [left, top, right - left, bottom - top], "area": (right - left) * (bottom - top)}
