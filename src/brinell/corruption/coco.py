"""Copies with COCO annotations: the original's own where nothing moves, boxes in their new places where something does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from brinell.corruption.layouts import Folders, Records, to_json, to_xywh
from brinell.corruption.records import Record
from brinell.types import Label


@dataclass(frozen=True)
class Coco(Folders):
    """Files in `images`, and instances.json. Ids of images, annotations and categories are those of the original."""

    by_class: bool = False

    def file(self, record: Record) -> str:
        """Return the path of an original's file below the folder of a setting."""
        return f"images/{record.name}.{self.copy.ending}"

    def finish(self, records: Records) -> None:
        """Write instances.json."""
        every = list(records())
        given = _annotations_of(self.copy.dataset) or _make_annotations(every, self.copy.dataset.classes)
        for number, setting in enumerate(self.copy.settings):
            images = [
                {**given["images"][record.index], "file_name": self.file(record), "width": record.width}
                | {"height": record.height, **setting.facts, "original_id": record.original_id}
                for record in every
            ]
            moves = self.copy.options.size is not None or setting.perturbation.matrices(1, 8, 8) is not None
            placed = _move(given, every, number) if moves else _keep(given, every)
            content = {**given, "images": images, "annotations": list(placed)}
            self.copy.out.write(to_json(content), *setting.folder, "instances.json")


def _annotations_of(dataset: Any) -> dict[str, Any] | None:
    """Return the content of the COCO file that a dataset was read from; None for other datasets."""
    content: dict[str, Any] | None = dataset.annotations() if hasattr(dataset, "annotations") else None
    return content


def _keep(given: dict[str, Any], records: Sequence[Record]) -> Iterator[dict[str, Any]]:
    """Yield the annotations of images that were written, as they are."""
    written = {given["images"][record.index]["id"] for record in records}
    return (annotation for annotation in given["annotations"] if annotation["image_id"] in written)


def _move(given: dict[str, Any], records: Sequence[Record], setting: int) -> Iterator[dict[str, Any]]:
    """Yield annotations with the boxes of a setting. Outlines and keypoints don't move and are left out, as are crowds."""
    boxes = {
        given["images"][record.index]["id"]: {number: box for number, _, box in record.objects(setting)}
        for record in records
    }
    numbers: Counter[Any] = Counter()  # of an image's objects so far
    for annotation in given["annotations"]:
        image = annotation["image_id"]
        if annotation.get("iscrowd") or image not in boxes:
            continue
        box = boxes[image].get(numbers[image])
        numbers[image] += 1
        if box is not None:
            kept = {
                key: value for key, value in annotation.items() if key not in ("segmentation", "keypoints", "num_keypoints")
            }
            place = to_xywh(box)
            yield {**kept, "bbox": place, "area": round(place[2] * place[3], 3), "iscrowd": 0}


def _make_annotations(records: Sequence[Record], classes: tuple[str, ...] | None) -> dict[str, Any]:
    """Return annotations for a dataset that has none of its own; all objects are there, even those that leave an image."""
    names: dict[str, int] = {name: number for number, name in enumerate(classes or (), 1)}
    images = {record.index: {"id": record.index + 1} for record in records}
    annotations: list[dict[str, Any]] = []
    for record in records:
        for label in record.box_labels or ():
            category = names.setdefault(_category(label, classes), len(names) + 1)
            annotations.append({"id": len(annotations) + 1, "image_id": record.index + 1, "category_id": category})
    categories = [{"id": number, "name": name} for name, number in names.items()]
    return {"info": {}, "licenses": [], "images": images, "annotations": annotations, "categories": categories}


def _category(label: Label, classes: tuple[str, ...] | None) -> str:
    return classes[label] if isinstance(label, int) and classes is not None else str(label)
