"""COCO annotations: images with boxes."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from brinell.config.data import DataOptions
from brinell.datasets.columns import find_credits, find_metadata
from brinell.datasets.decode import read_image
from brinell.documents import load_json
from brinell.errors import DataError
from brinell.types import Sample

PARTS = ("images", "annotations", "categories")
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
    file: Path | None = None

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int, /) -> Sample:
        entry = self.images[index]
        boxes = torch.tensor(self.boxes[entry["id"]], dtype=torch.float32).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        labels = tuple(self.box_classes[entry["id"]])
        only = labels[0] if len(set(labels)) == 1 else None
        image, facts = read_image(self.root / entry["file_name"]), find_metadata(entry, ("date_captured",))
        return Sample(image, only, entry["file_name"], boxes, labels, metadata=facts)

    def annotations(self) -> dict[str, Any] | None:
        """Return the content of the annotation file; None if there is none."""
        return None if self.file is None else _read(self.file)

    def credits(self, index: int) -> dict[str, str]:
        """Return what is known about an image's author and licence."""
        entry = self.images[index]
        licence = self.licences.get(entry.get("license"), {})
        named = {"licence": licence.get("url") or licence.get("name")}
        return find_credits({**named, **{key: value for key, value in entry.items() if key != "license"}})


def open_instances(folder: Path, options: DataOptions) -> Coco:
    """Open the annotation file instances.json of a folder."""
    return open_coco(folder / "instances.json", options)


def _is_file(path: Path) -> bool:
    """Whether there is a file; a name that can't be one, because it is too long, is none."""
    try:
        return path.is_file()
    except OSError:
        return False


def open_coco(path: Path, options: DataOptions) -> Coco:
    """Open an annotation file. Images are in `options.images`, next to the file, or in a folder `images` next to it."""
    content = _read(path)
    entries, annotations, categories = (content[part] for part in PARTS)
    if not entries:
        raise DataError(f"{path} lists no images")
    order = {category["id"]: index for index, category in enumerate(categories)}
    boxes, box_classes = _read_boxes(path, annotations, order)
    folders = [path.parent, path.parent / "images", path.parent.parent / "images"]
    if options.images:
        folders = [Path(options.images)]
    root = max(folders, key=lambda folder: sum(_is_file(folder / entry["file_name"]) for entry in entries[:SEARCHED]))
    names = tuple(str(category["name"]) for category in categories)
    licences = {licence.get("id"): licence for licence in content.get("licenses") or []}
    return Coco(path.parent.resolve().name, root, entries, boxes, box_classes, names, licences, path)


def _read(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = load_json(path.read_text(encoding="utf-8-sig"))
        images, _, categories = (content[part] for part in PARTS)
        ids = Counter(image["id"] for image in images if image["file_name"])
        for category in categories:
            category["id"], category["name"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is not a COCO annotation file ({', '.join(PARTS)}): {error!r}") from error
    twice = next((identity for identity, count in ids.items() if count > 1), None)
    if twice is not None:
        raise DataError(f"{path} lists two images with the id {twice!r}; give each its own")
    return content


def _read_boxes(path: Path, annotations: Any, order: dict[Any, int]) -> tuple[dict[Any, Any], dict[Any, list[int]]]:
    """Return the boxes (x, y, width, height) and their classes by image."""
    boxes: dict[Any, list[list[float]]] = defaultdict(list)
    box_classes: dict[Any, list[int]] = defaultdict(list)
    for number, annotation in enumerate(annotations):
        try:
            if annotation.get("iscrowd"):
                continue
            image, category = annotation["image_id"], annotation["category_id"]
            box = [float(value) for value in annotation["bbox"]]
        except (AttributeError, KeyError, TypeError, ValueError):
            box = []
        if len(box) != 4 or not all(map(math.isfinite, box)) or min(box[2:]) < 0:
            raise DataError(
                f"{path}: expected an image_id, a category_id and a bbox of x, y, width, height, got "
                f"{_shorten(annotation)} (annotation {number})"
            )
        if category not in order:
            raise DataError(f"{path}: annotation {annotation.get('id')} has the category {category!r}, which is not listed")
        boxes[image].append(box)
        box_classes[image].append(order[category])
    return boxes, box_classes


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:120]}…"
