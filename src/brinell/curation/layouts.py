"""Layouts of a dataset of failures: folders of operators, COCO, or the layout that a paper's authors released theirs in.

All have a metadata.jsonl and can be tested again with `brinell run --data FOLDER`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from brinell.boxes import areas
from brinell.curation.failures import Failure
from brinell.curation.options import CurateOptions
from brinell.curation.records import digest, file_stems, folder_names, slug
from brinell.errors import ConfigError
from brinell.models.preprocess import Preprocess
from brinell.runs.store import Store
from brinell.types import Label


def _imagefolder(failures: Sequence[Failure], kind: str) -> list[str]:
    folder, stem = folder_names(failures), file_stems(failures)
    return [f"{folder[one.replay.change.id]}/{stem[one.replay.image]}-{digest(one)}.{kind}" for one in failures]


def _coco(failures: Sequence[Failure], kind: str) -> list[str]:
    return [f"images/{file}" for file in _imagefolder(failures, kind)]


def _paper(failures: Sequence[Failure], kind: str) -> list[str]:
    """Return property/image/model."""
    folder, stem = folder_names(failures), file_stems(failures)
    paths = [f"{folder[one.replay.change.id]}/{stem[one.replay.image]}/{slug(one.model.name)}" for one in failures]
    counts = Counter(paths)
    return [
        f"{path}-{digest(one)}.{kind}" if counts[path] > 1 else f"{path}.{kind}"
        for path, one in zip(paths, failures, strict=True)
    ]


LAYOUTS: Mapping[str, Callable[[Sequence[Failure], str], list[str]]] = {
    "imagefolder": _imagefolder,
    "coco": _coco,
    "paper": _paper,
}


def counterpart_files(failures: Sequence[Failure], files: Sequence[str], options: CurateOptions) -> list[str | None]:
    """Return the file that goes with each failure, if any: in a pair, the image that is right, hidden from readers of the
    dataset; in the paper's layout, the clean model input, one per input size.
    """
    inputs: dict[str, list[Preprocess]] = {}
    found: list[str | None] = []
    for failure, file in zip(failures, files, strict=True):
        folder = file.rpartition("/")[0]
        if failure.counterpart is not None:
            stem, _, kind = file.rpartition(".")
            found.append(f"{stem}-before.{kind}" if options.layout == "paper" else f".before/{file}")
            continue
        if options.layout != "paper":
            found.append(None)
            continue
        known = inputs.setdefault(folder, [])
        if failure.model_input not in known:
            known.append(failure.model_input)
        number = known.index(failure.model_input)
        found.append(f"{folder}/original{f'-{number + 1}' if number else ''}.{options.format}")
    return found


def require_boxes(failures: Sequence[Failure]) -> None:
    """Raise if there are no boxes to write as COCO."""
    for source in {failure.source.number: failure.source for failure in failures}.values():
        if all(original.boxes is None for original in source.originals.values()):
            raise ConfigError(f"the images of {source.url} have no boxes to write as COCO; use --layout imagefolder")


def write_coco(out: Store, failures: Sequence[Failure], records: Sequence[dict[str, Any]]) -> None:
    """Write instances.json: boxes where the changes moved them, without those that left the model input."""
    categories: dict[str, int] = {}
    for failure in failures:
        for name in failure.source.dataset.classes or ():
            categories.setdefault(name, len(categories) + 1)
    licences = list(dict.fromkeys(licence for record in records if (licence := licence_of(record))))
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for number, (failure, record) in enumerate(zip(failures, records, strict=True), 1):
        preprocess = failure.model.preprocess
        kept = {key: value for key, value in record.items() if key not in ("versions", "license")}
        entry = {"id": number, "width": preprocess.width, "height": preprocess.height, **kept}
        if licence_of(record):
            entry["license"] = licences.index(licence_of(record) or "") + 1
        images.append(entry)
        for annotation in _annotations(failure, categories):
            annotations.append({"id": len(annotations) + 1, "image_id": number, **annotation})
    content = {
        "info": {"description": "Failures of vision models, by brinell curate"},
        "licenses": [{"id": number, "name": name, "url": name} for number, name in enumerate(licences, 1)],
        "images": images,
        "annotations": annotations,
        "categories": [{"id": number, "name": name} for name, number in categories.items()],
    }
    out.write(json.dumps(content, ensure_ascii=False).encode(), "instances.json")


def _annotations(failure: Failure, categories: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Yield a failure's objects as annotations; add new categories."""
    for label, box, preferred in objects_of(failure):
        name = _category(failure, label)
        left, top, right, bottom = (round(value, 3) for value in box)
        sides = round(right - left, 3), round(bottom - top, 3)
        yield {
            "category_id": categories.setdefault(name, len(categories) + 1),
            "bbox": [left, top, *sides],
            "area": round(sides[0] * sides[1], 3),
            "iscrowd": 0,
            "preferred": preferred,
        }


def objects_of(failure: Failure) -> list[tuple[Label, list[float], bool]]:
    """Return the labels and boxes of a failure's objects, and whether each is the labelled object of the image."""
    original = failure.source.originals[failure.replay.image]
    given = torch.tensor(original.boxes or [], dtype=torch.float32).reshape(-1, 4)
    boxes = failure.replay.boxes(given, failure.model.preprocess, (original.height, original.width))
    objects = zip(original.box_labels, boxes.tolist(), areas(boxes).tolist(), strict=True)
    return [(label, box, number == original.preferred) for number, (label, box, area) in enumerate(objects) if area > 0]


def _category(failure: Failure, label: Label) -> str:
    classes = failure.source.dataset.classes
    return classes[label] if isinstance(label, int) and classes is not None else str(label)


def licence_of(record: Mapping[str, Any]) -> str | None:
    """Return the licence that a record names."""
    found = record.get("licence", record.get("license"))
    return None if found is None else str(found)
