"""Average precision of detectors at every level, from rows: COCO's metric, computed by pycocotools."""

from __future__ import annotations

import contextlib
import importlib.util
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from brinell.errors import MissingExtra
from brinell.runs.arrow import arrow_schema
from brinell.runs.folds import FOLDS, fold_of
from brinell.runs.run import Run
from brinell.runs.schema import Schema

PRECISION: Schema = {
    "model": "name",
    "operator": "name",
    "level": "int16",
    "map": "float64",  # mean average precision over IoU 0.5 to 0.95
    "map50": "float64",  # at IoU 0.5
    "without": "float64[]",  # `map` without each fold of the images (see `runs.folds`); null for folds without images
}
RECALLS = np.linspace(0, 1, 101)
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
    """Mean average precision over IoU 0.5 to 0.95, and at IoU 0.5; and the first without each fold of the images."""

    map: float
    map50: float
    without: tuple[float | None, ...] = ()


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
        rows.append({"model": model, "operator": operator, "level": level, **vars(precision)})
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
    folds = np.array([fold_of(image) for image, _, _ in objects])
    if not results:
        return Precision(0.0, 0.0, tuple(0.0 if fold in folds else None for fold in range(FOLDS)))
    curves = [_class_curves(*each) for each in _match(list(numbers.values()), annotations, np.array(results), folds)]
    table = np.stack(curves)  # (classes, folds and the whole, IoU)
    means = [_mean(table[:, fold]) if fold in folds else None for fold in range(FOLDS)]
    return Precision(_mean(table[:, -1]), _mean(table[:, -1, :1]), tuple(means))


def _match(
    images: list[int], annotations: list[dict[str, Any]], results: np.ndarray, folds: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield, for each class, which detections are right at each IoU (IoU, detections), the best first, their folds, and how
    many objects each fold has.
    """
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
    for number in range(len(classes)):
        found = evaluation.evalImgs[number * len(images) : (number + 1) * len(images)]
        known = [(fold, one) for fold, one in zip(folds, found, strict=True) if one is not None]
        order = np.argsort(-np.concatenate([one["dtScores"] for _, one in known]), kind="stable")
        right = np.concatenate([one["dtMatches"] for _, one in known], 1)[:, order] > 0
        owners = np.concatenate([np.full(len(one["dtScores"]), fold) for fold, one in known])[order]
        yield right, owners, np.bincount([fold for fold, one in known for _ in one["gtIds"]], minlength=FOLDS)


def _class_curves(right: np.ndarray, owners: np.ndarray, objects: np.ndarray) -> np.ndarray:
    """Return the average precision of a class without each fold and with all, (folds + 1, IoU); NaN without objects.

    As COCO does: at 101 recalls, the best precision at that recall or a higher one.
    """
    kept = np.concatenate([np.arange(FOLDS)[:, None] != owners, np.ones((1, len(owners)), bool)])  # (folds + 1, detections)
    total = np.append(objects.sum() - objects, objects.sum())
    table = np.full((FOLDS + 1, len(right)), np.nan)
    changed = [fold for fold in range(FOLDS) if objects[fold] or (owners == fold).any()]
    for fold in [*changed, FOLDS]:
        if total[fold]:
            hits = np.cumsum(right[:, kept[fold]], 1)  # (IoU, detections)
            precision = hits / np.arange(1, hits.shape[1] + 1)
            best = np.maximum.accumulate(precision[:, ::-1], 1)[:, ::-1]
            table[fold] = [_at_recalls(one / total[fold], each) for one, each in zip(hits, best, strict=True)]
    unchanged = [fold for fold in range(FOLDS) if fold not in changed]
    table[unchanged] = table[FOLDS]
    return table


def _at_recalls(recall: np.ndarray, precision: np.ndarray) -> float:
    places = np.searchsorted(recall, RECALLS, "left")
    return float(np.append(precision, 0.0)[np.minimum(places, len(precision))].mean())


def _mean(table: np.ndarray) -> float:
    valid = table[~np.isnan(table)]
    return float(valid.mean()) if valid.size else float("nan")


def _box(box: Sequence[float]) -> dict[str, Any]:
    left, top, right, bottom = box
    return {"bbox": [left, top, right - left, bottom - top], "area": (right - left) * (bottom - top)}
