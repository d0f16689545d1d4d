"""Where pictures lie: in folders of operators, as COCO, or as the paper's authors released theirs.

All have a metadata.jsonl. Each can be tested again: `brinell run --data FOLDER`.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from brinell.boxes import areas
from brinell.curation.failing import Picture
from brinell.curation.options import CurateOptions
from brinell.curation.records import digest, folders, slug, stems
from brinell.errors import ConfigError
from brinell.runs.store import Store
from brinell.types import Label


def encoded(image: Tensor, kind: str) -> bytes:
    """A model input as a file that loses nothing."""
    array = image[0].numpy() if len(image) == 1 else image.permute(1, 2, 0).numpy()
    sink = io.BytesIO()
    options = {"lossless": True, "quality": 80, "exact": True} if kind == "webp" else {}
    Image.fromarray(array).save(sink, kind, **options)
    return sink.getvalue()


Places = list[str]


def _imagefolder(pictures: Sequence[Picture], kind: str) -> Places:
    folder, stem = folders(pictures), stems(pictures)
    return [f"{folder[one.replay.change.id]}/{stem[one.replay.image]}-{digest(one)}.{kind}" for one in pictures]


def _coco(pictures: Sequence[Picture], kind: str) -> Places:
    return [f"images/{place}" for place in _imagefolder(pictures, kind)]


def _paper(pictures: Sequence[Picture], kind: str) -> Places:
    """Property / image / model."""
    folder, stem = folders(pictures), stems(pictures)
    places = [
        f"{folder[one.replay.change.id]}/{stem[one.replay.image]}/{slug(one.failures[0].model.name)}" for one in pictures
    ]
    often = Counter(places)
    return [
        f"{place}-{digest(one)}.{kind}" if often[place] > 1 else f"{place}.{kind}"
        for place, one in zip(places, pictures, strict=True)
    ]


LAYOUTS: Mapping[str, Callable[[Sequence[Picture], str], Places]] = {
    "imagefolder": _imagefolder,
    "coco": _coco,
    "paper": _paper,
}


def places_beside(pictures: Sequence[Picture], places: Sequence[str], options: CurateOptions) -> list[str | None]:
    """Where what is right beside each picture lies: the other of a pair, out of the way of those who read all pictures; in
    the paper's layout also the clean model input, one for each size that models see.
    """
    inputs: dict[str, list[Any]] = {}
    found: list[str | None] = []
    for picture, place in zip(pictures, places, strict=True):
        folder = place.rpartition("/")[0]
        if picture.before is not None:
            stem, _, kind = place.rpartition(".")
            found.append(f"{stem}-before.{kind}" if options.layout == "paper" else f".before/{place}")
            continue
        if options.layout != "paper":
            found.append(None)
            continue
        known = inputs.setdefault(folder, [])
        if picture.model_input not in known:
            known.append(picture.model_input)
        number = known.index(picture.model_input)
        found.append(f"{folder}/original{f'-{number + 1}' if number else ''}.{options.format}")
    return found


def check_boxes(pictures: Sequence[Picture]) -> None:
    """Raise if there are no boxes to write as COCO."""
    for source in {picture.source.number: picture.source for picture in pictures}.values():
        if all(original.boxes is None for original in source.originals.values()):
            raise ConfigError(f"the images of {source.url} have no boxes to write as COCO; use --layout imagefolder")


def write_coco(out: Store, pictures: Sequence[Picture], records: Sequence[dict[str, Any]]) -> None:
    """instances.json: the objects where the changes moved them; what left the model input is left out."""
    categories: dict[str, int] = {}
    for picture in pictures:
        for name in picture.source.dataset.classes or ():
            categories.setdefault(name, len(categories) + 1)
    licences = list(dict.fromkeys(licence for record in records if (licence := licence_of(record))))
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number, (picture, record) in enumerate(zip(pictures, records, strict=True), 1):
        pre = picture.failures[0].model.preprocess
        kept = {key: value for key, value in record.items() if key not in ("versions", "license")}
        entry = {"id": number, "width": pre.width, "height": pre.height, **kept}
        if licence_of(record):
            entry["license"] = licences.index(licence_of(record) or "") + 1
        images.append(entry)
        for label, box, preferred in objects_of(picture):
            name = _name(picture, label)
            left, top, right, bottom = (round(value, 3) for value in box)
            sides = round(right - left, 3), round(bottom - top, 3)
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": categories.setdefault(name, len(categories) + 1),
                    "bbox": [left, top, *sides],
                    "area": round(sides[0] * sides[1], 3),
                    "iscrowd": 0,
                    "preferred": preferred,
                }
            )
    content = {
        "info": {"description": "Failures of vision models, by brinell curate"},
        "licenses": [{"id": place, "name": name, "url": name} for place, name in enumerate(licences, 1)],
        "images": images,
        "annotations": annotations,
        "categories": [{"id": place, "name": name} for name, place in categories.items()],
    }
    out.write(json.dumps(content, ensure_ascii=False).encode(), "instances.json")


def objects_of(picture: Picture) -> list[tuple[Label, list[float], bool]]:
    """The labels and boxes of a picture's objects, and whether one is the object that the image is about."""
    original = picture.source.originals[picture.replay.image]
    given = torch.tensor(original.boxes or [], dtype=torch.float32).reshape(-1, 4)
    pre = picture.failures[0].model.preprocess
    boxes = picture.replay.boxes(given, pre, (original.height, original.width))
    return [
        (label, box, place == original.preferred)
        for place, (label, box, area) in enumerate(
            zip(original.box_labels, boxes.tolist(), areas(boxes).tolist(), strict=True)
        )
        if area > 0
    ]


def _name(picture: Picture, label: Label) -> str:
    classes = picture.source.dataset.classes
    return classes[label] if isinstance(label, int) and classes is not None else str(label)


def licence_of(record: Mapping[str, Any]) -> str | None:
    """The licence that a record names."""
    found = record.get("licence", record.get("license"))
    return None if found is None else str(found)
