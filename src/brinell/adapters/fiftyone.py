"""A run for FiftyOne: its images, their labels, and every model's answers at every operator and level.

The folder is in FiftyOne's format for serialised samples, which `fiftyone.Dataset.from_dir` reads. Writing it needs neither
FiftyOne nor its database.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import torch

from brinell.curation.runs import Original, SourceRun, preprocess_of
from brinell.models.preprocess import Preprocess
from brinell.pictures import encode_image
from brinell.runs.run import ModelRecord, Run
from brinell.runs.store import Store
from brinell.types import Label

_ROWS = """
select samples.index, rows.model, rows.lens, rows.operator, rows.level, rows.amount, rows.prediction, rows.confidence,
    rows.correct, rows.detected_boxes, rows.detected_labels, rows.detected_scores
from rows join samples on samples.image = rows.image
where rows.prediction is not null
order by samples.index, rows.model, rows.lens, rows.operator, rows.level
"""
_FETCHED = 10_000  # rows at a time


@dataclass(frozen=True)
class Exported:
    """What was written: the folder, and how many images and answers it holds."""

    folder: str
    images: int
    answers: int


def export(run: Run, folder: str | os.PathLike[str], *, data: Any = None) -> Exported:
    """Write a run as a dataset of FiftyOne, which `Dataset.from_dir(folder, dataset_type=types.FiftyOneDataset)` reads.

    Each image has `ground_truth`, and for each model a field of its name with one label per answer, whose attributes are
    `lens`, `operator`, `level`, `amount` and `correct`; the boxes of a detector are in a second field, NAME_boxes. `data`
    is where the run's images are now, if they moved or were an object.
    """
    out, source = Store(folder), SourceRun(0, run, os.fspath(data) if isinstance(data, os.PathLike) else data)
    dataset = source.dataset  # an error before anything is written
    fields = {model: _field(model) for model in run.models}
    preprocesses = {model: preprocess_of(record) for model, record in run.models.items()}
    originals = {original.entry.index: original for original in source.originals.values()}
    images = answers = 0
    with out.writing("samples.json") as file:
        file.write(b'{"samples": [')
        for index, rows in groupby(_read(run), key=itemgetter(0)):
            original, own = originals[index], list(rows)
            path = f"data/{index:08}.png"
            out.write(encode_image(dataset[index].image, "png"), *path.split("/"))
            sample: dict[str, Any] = {
                "filepath": path,
                "tags": [],
                "name": original.entry.name,
                "image": original.entry.image,
            }
            sample["ground_truth"] = _truth(original, dataset.classes)
            for model, each in groupby(own, key=itemgetter(1)):
                sample |= _answers(fields[model], run.models[model], list(each), preprocesses[model], original)
            file.write((b",\n" if images else b"\n") + json.dumps(sample, ensure_ascii=False).encode())
            images, answers = images + 1, answers + len(own)
        file.write(b"\n]}\n")
    info = {"run": run.folder, "data": dict(run.data), "models": fields}
    metadata = {"name": f"brinell-{_field(run.data['name'])}", "media_type": "image", "info": info}
    out.write(json.dumps(metadata, ensure_ascii=False, indent=1).encode(), "metadata.json")
    return Exported(out.place(), images, answers)


def _read(run: Run) -> Iterator[tuple[Any, ...]]:
    result = run.connection.execute(_ROWS)
    while rows := result.fetchmany(_FETCHED):
        yield from rows


def _field(name: str) -> str:
    """Return a name that FiftyOne takes for a field: letters, digits and underscores, and a letter first."""
    plain = re.sub(r"\W+", "_", name).strip("_")
    return plain if plain[:1].isalpha() else f"model_{plain}"


def _truth(original: Original, classes: tuple[str, ...] | None) -> dict[str, Any] | None:
    if original.boxes is not None:
        size = original.width, original.height
        labels = (_name(label, classes) for label in original.box_labels)
        boxes = (_detection(label, _relative(box, *size)) for label, box in zip(labels, original.boxes, strict=True))
        return {"_cls": "Detections", "detections": list(boxes)}
    return None if original.label is None else _classification(_name(original.label, classes))


def _answers(
    field: str, model: ModelRecord, rows: Sequence[tuple[Any, ...]], preprocess: Preprocess, original: Original
) -> dict[str, Any]:
    """Return a model's answers to an image as labels: one per row, and the boxes that a detector found."""
    labels, boxes = [], []
    for _, _, lens, operator, level, amount, prediction, confidence, correct, *found in rows:
        change = {"lens": lens, "operator": operator, "level": level, "amount": amount}
        label = model.class_name(prediction) or ("nothing" if prediction < 0 else str(prediction))
        labels.append(_classification(label, confidence=confidence, **change, correct=correct))
        if found[0]:
            placed = preprocess.unmap_boxes(torch.tensor(found[0]), original.height, original.width).tolist()
            for box, kind, score in zip(placed, found[1], found[2], strict=True):
                place = _relative(box, original.width, original.height)
                boxes.append(_detection(model.class_name(kind) or str(kind), place, confidence=score, **change))
    answers: dict[str, Any] = {field: {"_cls": "Classifications", "classifications": labels}}
    if model.detector:
        answers[f"{field}_boxes"] = {"_cls": "Detections", "detections": boxes}
    return answers


def _classification(label: str, **facts: Any) -> dict[str, Any]:
    return {"_cls": "Classification", "tags": [], "label": label, **_known(facts)}


def _detection(label: str, box: list[float], **facts: Any) -> dict[str, Any]:
    return {"_cls": "Detection", "attributes": {}, "tags": [], "label": label, "bounding_box": box, **_known(facts)}


def _known(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts that are known; FiftyOne infers the type of a field from its first value."""
    return {name: value for name, value in facts.items() if value is not None}


def _name(label: Label, classes: tuple[str, ...] | None) -> str:
    return classes[label] if isinstance(label, int) and classes is not None else str(label)


def _relative(box: Sequence[float], width: int, height: int) -> list[float]:
    """Return a box in pixels (xyxy) as FiftyOne writes it: left, top, width and height, relative to the image."""
    left, top, right, bottom = box
    return [left / width, top / height, (right - left) / width, (bottom - top) / height]
