"""COCO annotations: images with boxes."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from brinell.config.data import DataOptions
from brinell.datasets.decode import read_image
from brinell.datasets.files import find_credits
from brinell.errors import DataError
from brinell.types import Sample

SEARCHED = 100  # images that decide in which folder they are; some may be missing


@dataclass(frozen=True)
class Coco:
    """Images with boxes, xyxy in pixels. If all boxes of an image have the same category, that is the image's label."""

    name: str
    root: Path
    images: list[dict[str, Any]]
    boxes: dict[int, list[list[float]]]
    box_classes: dict[int, list[int]]
    classes: tuple[str, ...] | None
    licences: dict[Any, dict[str, Any]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int, /) -> Sample:
        entry = self.images[index]
        boxes = torch.tensor(self.boxes[entry["id"]], dtype=torch.float32).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        labels = tuple(self.box_classes[entry["id"]])
        only = labels[0] if len(set(labels)) == 1 else None
        return Sample(read_image(self.root / entry["file_name"]), only, entry["file_name"], boxes, labels)

    def credits(self, index: int) -> dict[str, str]:
        """Return what is known about an image's author and licence."""
        entry = self.images[index]
        licence = self.licences.get(entry.get("license"), {})
        named = {"licence": licence.get("url") or licence.get("name")}
        return find_credits({**named, **{key: value for key, value in entry.items() if key != "license"}})


def open_instances(folder: Path, options: DataOptions) -> Coco:
    """Open the annotation file instances.json of a folder."""
    return open_coco(folder / "instances.json", options)


def open_coco(path: Path, options: DataOptions) -> Coco:
    """Open an annotation file. Images are in `options.images`, next to the file, or in a folder `images` next to it."""
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
        entries = content["images"]
        annotations = content["annotations"]
        categories = content["categories"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is not a COCO annotation file (images, annotations, categories): {error!r}") from error
    if not entries:
        raise DataError(f"{path} lists no images")
    order = {category["id"]: index for index, category in enumerate(categories)}
    boxes: dict[int, list[list[float]]] = defaultdict(list)
    box_classes: dict[int, list[int]] = defaultdict(list)
    for annotation in annotations:
        if annotation.get("iscrowd"):
            continue
        boxes[annotation["image_id"]].append(annotation["bbox"])
        category = annotation["category_id"]
        if category not in order:
            raise DataError(f"{path}: annotation {annotation.get('id')} has the category {category!r}, which is not listed")
        box_classes[annotation["image_id"]].append(order[category])
    folders = [path.parent, path.parent / "images", path.parent.parent / "images"]
    if options.images:
        folders = [Path(options.images)]
    root = max(folders, key=lambda folder: sum((folder / entry["file_name"]).is_file() for entry in entries[:SEARCHED]))
    names = tuple(category["name"] for category in categories)
    licences = {licence.get("id"): licence for licence in content.get("licenses") or []}
    return Coco(path.parent.resolve().name, root, entries, boxes, box_classes, names, licences)
