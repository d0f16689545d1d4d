"""The folder of a hardening, and the record of what was trained on.

hardening.json        config, versions, parts and epochs
parts.jsonl           every image with its original, class, operator and part, and whether it was trained on
checkpoints/          the state of training, and the weights to keep
failures/             failures of runs that the config names
model.safetensors, hardened.json    the model, which opens as hardened:FOLDER
before/, after/       runs of the model before and after, on images that it was not trained on
summary.json, summary.html          the effect
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from brinell.engine.manifest import first_difference
from brinell.errors import RunError
from brinell.hardening.augment import MEASURED_AS
from brinell.hardening.checkpoints import TrainingState
from brinell.hardening.images import LabelledImage
from brinell.hardening.options import HardenConfig
from brinell.hardening.splits import Part
from brinell.models.model import Model
from brinell.registry import VariantId
from brinell.runs.store import Store
from brinell.versions import package_version

RECORD, ITEMS = "hardening.json", "parts.jsonl"
_VERSIONED = ("brinell", "torch", "numpy", "pillow", "safetensors")


def begin_record(
    store: Store, config: HardenConfig, model: Model, items: Sequence[LabelledImage], parts: dict[str, Part]
) -> dict[str, Any]:
    """Return the record in this folder, written now if there is none; raise if it is of another hardening."""
    lines = b"".join(json.dumps(_describe(item, parts, config.training.clean)).encode() + b"\n" for item in items)
    identity = {"config": config.identity(), "model": model.fingerprint}
    if store.exists(RECORD):
        record: dict[str, Any] = json.loads(store.read(RECORD))
        if record["identity"] != identity:
            raise RunError(
                f"{store.url} holds another hardening ({first_difference(record['identity'], identity)}); use its "
                "settings, or choose another folder with out"
            )
        if store.exists(ITEMS) and store.read(ITEMS) != lines:
            raise RunError(
                f"the images have changed since the hardening in {store.url} began; restore them, or choose another "
                "folder with out"
            )
        return record
    if store.exists("manifest.json"):
        raise RunError(f"{store.url} holds a run; choose another folder with out")
    record = {
        "format": 1,
        "identity": identity,
        "config": config.model_dump(mode="json"),
        "model": {"name": model.name, "fingerprint": model.fingerprint, **model.facts},
        "parts": count_images(items, parts),
        "operators": sorted(trained_operators(config, items, parts)),
        "versions": {name: package_version(name) for name in _VERSIONED},
        "created": time.strftime("%Y-%m-%d %H:%M:%S"),
        "finished": False,
    }
    store.write(lines, ITEMS)
    write_record(store, record)
    return record


def write_record(store: Store, record: dict[str, Any]) -> None:
    """Replace the record."""
    store.write(json.dumps(record, indent=1, ensure_ascii=False).encode(), RECORD)


def with_training(record: dict[str, Any], state: TrainingState) -> dict[str, Any]:
    """Return the record with the epochs of training."""
    return record | {
        "epochs": [asdict(epoch) for epoch in state.epochs],
        "kept": state.kept,
        "stopped": state.reason,
    }


def count_images(items: Sequence[LabelledImage], parts: dict[str, Part]) -> dict[str, dict[str, int]]:
    """Return the number of originals, clean images and failures per part."""
    found: dict[str, dict[str, int]] = {}
    originals = Counter(parts[original] for original in {item.original for item in items})
    for part in dict.fromkeys(parts.values()):
        own = [item for item in items if parts[item.original] == part]
        clean = sum(item.clean for item in own)
        found[part] = {"originals": originals[part], "clean": clean, "failures": len(own) - clean}
    return found


def trained_operators(config: HardenConfig, items: Sequence[LabelledImage], parts: dict[str, Part]) -> set[str]:
    """Return the names of the operators that training images were changed by, as lenses name them."""
    found = {
        VariantId.parse(item.operator).name
        for item in items
        if item.operator is not None and parts[item.original] == "train"
    }
    for one in config.augment.operators:
        name = VariantId.parse(one.name).name
        found |= set(MEASURED_AS.get(name, (name,)))
    return found


def _describe(item: LabelledImage, parts: dict[str, Part], clean: bool) -> dict[str, Any]:
    part = parts[item.original]
    return {
        "image": item.image,
        "name": item.name,
        "dataset": item.dataset.name,
        "label": item.label,
        "original": item.original,
        "operator": item.operator,
        "clean": item.clean,
        "part": part,
        "trained": part == "train" and (clean or not item.clean),
    }
