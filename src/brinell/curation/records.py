"""What is told of each picture: a line of metadata.jsonl."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from brinell.curation.failing import Failure, Picture
from brinell.curation.sources import Source, failures_of
from brinell.datasets.decode import SUFFIXES
from brinell.types import Label


def record(picture: Picture, file: str, before: str | None, sources: Sequence[Source]) -> dict[str, Any]:
    """All that is known of a picture, as plain data; `before` is the file of what is right beside it, in a pair."""
    original = picture.source.originals[picture.replay.image]
    change = picture.replay.change
    parameters = list(picture.replay.parameters)
    failures = failures_of(picture.lens)
    told = failures.parameters if failures is not None else "parameters"
    return {
        "file_name": file,
        "label": label_of(picture),
        "label_name": label_name(picture),
        "original": original.entry.name,
        "original_id": original.entry.image,
        "lens": picture.lens,
        "operator": change.id,
        "parameters": {
            told: int(parameters[0]) if told == "level" else parameters,
            "direction": picture.direction,
            "field": picture.replay.field,
            "seed": picture.seed,
        },
        "amount": picture.amount,
        "unit": change.unit,
        "intensity": round(picture.intensity, 4),
        "distances": picture.distances,
        "models": [failure.model.name for failure in picture.failures],
        "failures": [
            _failure(failure, picture.replay.image, sources[failure.model.source]) for failure in picture.failures
        ],
        **({"before": before} if picture.before is not None else {}),
        "models_failing_elsewhere": picture.fails - len(picture.failures),
        "run": picture.source.url,
        "versions": picture.source.run.manifest["versions"],
        **credits_of(picture.source, original.entry.index),
    }


def _failure(failure: Failure, image: str, source: Source) -> dict[str, Any]:
    model = failure.model
    clean = source.clean[model.own, source.originals[image].entry.index]
    return {
        "model": model.name,
        "fingerprint": model.fingerprint,
        "truth": failure.label,
        "before": {
            "label": clean.prediction,
            "label_name": model.class_name(clean.prediction),
            "confidence": clean.confidence,
        },
        "after": {
            "label": failure.prediction,
            "label_name": model.class_name(failure.prediction),
            "confidence": failure.confidence,
            "truth_confidence": failure.probability,
        },
        "from": "asked" if failure.asked else "rows",
    }


def label_of(picture: Picture) -> Label | None:
    """A label that means the same class again: the dataset's own, by its name where its numbers are its own."""
    source, failure = picture.source, picture.failures[0]
    original = source.originals[picture.replay.image]
    if source.config["data"]["labels"] == "prediction" or original.label is None:
        return failure.label
    classes = source.dataset.classes
    if isinstance(original.label, int) and classes is not None and source.config["data"]["labels"] != "index":
        return classes[original.label]
    return original.label


def label_name(picture: Picture) -> str | None:
    """The class's name: as the model has it, or the dataset."""
    failure = picture.failures[0]
    label = label_of(picture)
    return failure.model.class_name(failure.label) or (label if isinstance(label, str) else None)


def class_of(picture: Picture) -> str:
    """What a picture's class is called, for counting."""
    return label_name(picture) or str(label_of(picture))


def credits_of(source: Source, index: int) -> Mapping[str, str]:
    """What the dataset knows of an image's author and licence."""
    known = getattr(source.dataset, "credits", None)
    return known(index) if known is not None else {}


def digest(picture: Picture) -> str:
    """10 hex digits that tell a picture from all others."""
    return hashlib.blake2b(f"{picture.key}|{picture.model_input}".encode(), digest_size=5).hexdigest()


def stems(pictures: Sequence[Picture]) -> dict[str, str]:
    """A file's stem for each original, from its name; equal ones are told apart by their ids."""
    named = {}
    for picture in pictures:
        image = picture.replay.image
        named[image] = _stem(picture.source.originals[image].entry.name)
    often = Counter(named.values())
    return {image: stem if often[stem] == 1 else f"{stem}-{image[:8]}" for image, stem in named.items()}


def folders(pictures: Sequence[Picture]) -> dict[str, str]:
    """A folder's name for each operator: its own, with its variant where it is there in several."""
    readings = defaultdict(set)
    for picture in pictures:
        readings[picture.replay.change.name].add(picture.replay.change.id)
    return {name: plain if len(names) == 1 else slug(name) for plain, names in sorted(readings.items()) for name in names}


def slug(text: str) -> str:
    """A text as part of a file's name, anywhere."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.") or "image"


def _stem(name: str) -> str:
    path = PurePosixPath(Path(name).as_posix())
    path = PurePosixPath(path.name) if path.is_absolute() else path
    return slug(str(path.with_suffix("") if path.suffix.lower() in SUFFIXES else path))
