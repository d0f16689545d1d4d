"""What ran, as data: a run's identity, its manifest, and the refusal of another run in its folder."""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from brinell.engine.setup import Job, RunSetup
from brinell.engine.survey import data_fingerprint
from brinell.engine.tuning import SHARD, best_batch
from brinell.errors import RunError
from brinell.lenses.lens import LENSES
from brinell.models.model import Model
from brinell.run_config import RunConfig
from brinell.runs.plain import to_plain
from brinell.runs.store import FORMAT, Store
from brinell.types import Dataset
from brinell.versions import package_version

_VERSIONED = ("brinell", "torch", "numpy", "pillow", "opencv-python-headless", "onnxruntime", "pyarrow")
_FIXES = "go on with that run's settings, or give this one a folder of its own with --out"


def new_manifest(setup: RunSetup, jobs: Sequence[Job], samples: pa.Table) -> dict[str, Any]:
    """Return the manifest of a run that starts now. The batch size is measured, unless it is given."""
    config, models, execution = setup.config, setup.models, setup.config.execution
    unsupported = [
        {"model": job.model.name, "operator": operator, "reason": reason}
        for job in jobs
        for operator, reason in job.unsupported.items()
    ]
    changes = [change for options in config.lenses for change in LENSES[options.name].method.changes(options)]
    return {
        "format": FORMAT,
        "identity": {**_settings(config, models), "data": _data(setup.dataset, samples)},
        "source": config.model_dump(mode="json", exclude={"track"}),  # a URI may hold a password
        "models": {model.name: {**_described(model), **model.facts} for model in models},
        "operators": {change.id: change.describe() for change in changes},
        "unsupported": unsupported,
        "execution": {
            "batch": {model.name: execution.batch or best_batch(model) for model in models},
            "shard": execution.shard or SHARD.get(models[0].device.type, 128),
        },
        "versions": {name: package_version(name) for name in _VERSIONED},
        "machine": {"python": platform.python_version(), "system": platform.system(), "processor": platform.machine()},
        "created": time.strftime("%Y-%m-%d %H:%M:%S"),
        "seconds": 0.0,
        "finished": False,
    }


def refuse_other_settings(store: Store, config: RunConfig, models: Sequence[Model]) -> None:
    """Raise if the folder holds a run of another config or of other models."""
    if not store.exists("manifest.json"):
        return
    held, asked = store.manifest()["identity"], _settings(config, models)
    held = {key: held.get(key) for key in asked}
    if held != asked:
        raise RunError(f"{store.url} holds another run ({first_difference(held, asked)}); {_FIXES}")


def refuse_other_images(store: Store, dataset: Dataset, samples: pa.Table) -> None:
    """Raise if the folder holds a run on other images or labels."""
    if not store.exists("manifest.json"):
        return
    held, asked = store.manifest()["identity"]["data"], _data(dataset, samples)
    if held != asked:
        where = _first_change(store.table("samples"), samples) if store.exists("samples.parquet") else "the images"
        raise RunError(
            f"{where} changed since the run in {store.url} began; restore the data, or give this run a folder of its own "
            "with --out"
        )


@contextmanager
def count_queries(store: Store, models: Sequence[Model], manifest: dict[str, Any]) -> Iterator[None]:
    """Count what is asked of services for this run, and put it into its manifest, whether it ends well or not."""
    services = {model.name: model.service for model in models if model.service is not None}
    before = {name: counts.get("unanswered", 0) for name, counts in manifest.get("queries", {}).items()}
    for service in services.values():
        service.begin(f"{store.place()} of {manifest['created']}")
    try:
        yield
    finally:
        if services:
            manifest["queries"] = {
                name: {
                    **asdict(service.counts),
                    "price": service.price,
                    "unanswered": before.get(name, 0) + service.unanswered,
                }
                for name, service in services.items()
            }
            store.write_manifest(manifest)


def _settings(config: RunConfig, models: Sequence[Model]) -> dict[str, Any]:
    """What rows depend on besides the images. How a run is carried out is no part of it, except for the precision."""
    return {
        "config": config.identity(),
        "models": {
            model.name: {**_described(model), "classes": _digest(model), "fingerprint": model.fingerprint}
            for model in models
        },
    }


def _digest(model: Model) -> str | None:
    """16 hex digits of a model's class list, which is long."""
    if model.classes is None:
        return None
    return hashlib.blake2b("\n".join(model.classes.names).encode(), digest_size=8).hexdigest()


def _data(dataset: Dataset, samples: pa.Table) -> dict[str, str]:
    return {"name": dataset.name, "fingerprint": data_fingerprint(samples)}


def _described(model: Model) -> dict[str, Any]:
    pre = model.preprocess
    return {
        "outputs": model.outputs,
        "classes": list(model.classes.names) if model.classes is not None else None,
        "input": [pre.channels, pre.height, pre.width],
        "preprocess": to_plain(pre),
        **({} if model.detector is None else {"detection": model.detector.decoding.settings()}),
    }


def first_difference(old: Any, new: Any, where: str = "") -> str:
    """The first place in which two identities differ, for people."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *new]:
            if old.get(key) != new.get(key):
                return first_difference(old.get(key), new.get(key), f"{where}.{key}" if where else key)
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for place, (left, right) in enumerate(zip(old, new, strict=True)):
            if left != right:
                return first_difference(left, right, f"{where}.{place}")
    return f"{where} was {old!r} and is now {new!r}"


def _first_change(old: pa.Table, new: pa.Table) -> str:
    """The first image that is not what it was, is gone or is new, for people."""
    columns = ("name", "image", "label", "problem")
    before, after = (list(zip(*(table[name].to_pylist() for name in columns), strict=True)) for table in (old, new))
    here, there = set(before), set(after)
    changed = next((image for image in before if image not in there), None)
    changed = changed or next((image for image in after if image not in here), None)
    return str(changed[0]) if changed else "the order of the images"
