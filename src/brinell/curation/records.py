"""The record of each failure: a line of metadata.jsonl."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from brinell.curation.failures import Failure, WrongAnswer
from brinell.curation.runs import SourceRun, failures_of
from brinell.datasets.decode import SUFFIXES
from brinell.types import Label


def record_failure(
    failure: Failure, file: str, counterpart: str | None, mask: str | None, sources: Sequence[SourceRun]
) -> dict[str, Any]:
    """Return all facts about a failure as plain data; `counterpart` is the file of the image that is right, in a pair, and
    `mask` the file with the classes of its pixels.
    """
    original = failure.source.originals[failure.replay.image]
    change = failure.replay.change
    parameters = list(failure.replay.parameters)
    failures = failures_of(failure.lens)
    name = failures.parameters if failures is not None else "parameters"
    return {
        "file_name": file,
        "label": label_of(failure),
        "label_name": label_name(failure),
        "original": original.entry.name,
        "original_id": original.entry.image,
        "lens": failure.lens,
        "operator": change.id,
        "parameters": {
            name: int(parameters[0]) if name == "level" else parameters,
            "direction": failure.direction,
            "field": failure.replay.field,
            "seed": failure.seed,
        },
        "amount": failure.amount,
        "unit": change.unit,
        "intensity": round(failure.intensity, 4),
        "distances": failure.distances,
        "models": [answer.model.name for answer in failure.answers],
        "failures": [_record_answer(answer, failure.replay.image, sources[answer.model.run]) for answer in failure.answers],
        **({"before": counterpart} if failure.counterpart is not None else {}),
        **({} if mask is None else {"mask": mask}),
        "models_failing_elsewhere": failure.fails - len(failure.answers),
        "run": failure.source.url,
        "versions": failure.source.run.manifest["versions"],
        **credits_of(failure.source, original.entry.index),
    }


def _record_answer(answer: WrongAnswer, image: str, source: SourceRun) -> dict[str, Any]:
    model = answer.model
    clean = source.clean[model.own, source.originals[image].entry.index]
    return {
        "model": model.name,
        "fingerprint": model.fingerprint,
        "truth": answer.label,
        "before": {
            "label": clean.prediction,
            "label_name": model.class_name(clean.prediction),
            "confidence": clean.confidence,
        },
        "after": {
            "label": answer.prediction,
            "label_name": model.class_name(answer.prediction),
            "confidence": answer.confidence,
            "truth_confidence": answer.probability,
        },
        "from": "query" if answer.queried else "rows",
    }


def label_of(failure: Failure) -> Label | None:
    """Return the dataset's label; a class name where the dataset has numbers of its own."""
    source, answer = failure.source, failure.answers[0]
    original = source.originals[failure.replay.image]
    if source.config["data"]["labels"] == "prediction":
        return answer.label
    if original.label is None:  # it has a mask
        return answer.model.class_name(answer.label) or answer.label
    classes = source.dataset.classes
    if isinstance(original.label, int) and classes is not None and source.config["data"]["labels"] != "index":
        return classes[original.label]
    return original.label


def label_name(failure: Failure) -> str | None:
    """Return the name of the class, from the model or else the dataset."""
    answer = failure.answers[0]
    label = label_of(failure)
    return answer.model.class_name(answer.label) or (label if isinstance(label, str) else None)


def class_of(failure: Failure) -> str:
    """Return the name of the class, or else the label, for counting."""
    return label_name(failure) or str(label_of(failure))


def credits_of(source: SourceRun, index: int) -> Mapping[str, str]:
    """Return what the dataset knows about an image's author and licence."""
    known = getattr(source.dataset, "credits", None)
    return known(index) if known is not None else {}


def digest(failure: Failure) -> str:
    """Return 10 hex digits that identify a failure."""
    return hashlib.blake2b(f"{failure.key}|{failure.model_input}".encode(), digest_size=5).hexdigest()


def file_stems(failures: Sequence[Failure]) -> dict[str, str]:
    """Return a file stem per original, from its name; equal names are followed by an id."""
    named = {}
    for failure in failures:
        image = failure.replay.image
        named[image] = _stem(failure.source.originals[image].entry.name)
    counts = Counter(named.values())
    return {image: stem if counts[stem] == 1 else f"{stem}-{image[:8]}" for image, stem in named.items()}


def folder_names(failures: Sequence[Failure]) -> dict[str, str]:
    """Return a folder name per operator id: its name, followed by its variant if there are several."""
    variants = defaultdict(set)
    for failure in failures:
        variants[failure.replay.change.name].add(failure.replay.change.id)
    return {name: plain if len(names) == 1 else slug(name) for plain, names in sorted(variants.items()) for name in names}


def slug(text: str) -> str:
    """Return a text as a part of a file name that is valid everywhere."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.") or "image"


def _stem(name: str) -> str:
    path = PurePosixPath(Path(name).as_posix())
    path = PurePosixPath(path.name) if path.is_absolute() else path
    return slug(str(path.with_suffix("") if path.suffix.lower() in SUFFIXES else path))
