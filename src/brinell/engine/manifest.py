"""What ran, as data: a run's identity, its manifest, and the refusal of another run in its folder."""

from __future__ import annotations

import hashlib
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from brinell.engine.clean import readable
from brinell.engine.probes import changed_answer, probe_answers
from brinell.engine.setup import Job, RunSetup
from brinell.engine.survey import data_fingerprint
from brinell.engine.tuning import SHARD, best_batch
from brinell.engine.units import measured_sizes, wide_jobs
from brinell.errors import RunError
from brinell.hashing import file_sha256
from brinell.lenses.lens import LENSES
from brinell.models.model import Model
from brinell.run_config import RunConfig
from brinell.runs.plain import to_plain
from brinell.runs.store import FORMAT, Store
from brinell.types import Dataset
from brinell.versions import package_version

_VERSIONED = ("brinell", "torch", "numpy", "pillow", "opencv-python-headless", "onnxruntime", "openvino", "pyarrow")
WHO = ("part", "devices", "cluster", "actors", "actor_gpus")  # execution: who measures, which a resumed run may change
_FIXES = "use that run's settings, or choose another folder with --out"


def new_manifest(setup: RunSetup, jobs: Sequence[Job], samples: pa.Table) -> dict[str, Any]:
    """Return the manifest of a new run. The sizes of batches and units are measured unless they are given."""
    config, models, execution = setup.config, setup.models, setup.config.execution
    unsupported = [
        {"model": job.model.name, "operator": operator, "reason": reason}
        for job in jobs
        for operator, reason in job.unsupported.items()
    ]
    changes = [change for options in config.lenses for change in LENSES[options.name].method.changes(options)]
    how: dict[str, Any] = {
        "batch": {model.name: execution.batch or best_batch(model) for model in models},
        "shard": execution.shard or SHARD.get(models[0].device.type, 128),
    }
    if sizes := measured_sizes(setup, jobs, readable(samples), how):
        how["unit"] = sizes
        if wide := wide_jobs(jobs, sizes):
            how["wide"] = wide
    return {
        "format": FORMAT,
        "identity": _identity(setup, samples),
        # a URI may hold a password, and whether code may run is for whoever opens the run to say
        "source": config.model_dump(
            mode="json",
            exclude={"track": True, "budget": True, "plan": True, "execution": {"trust", *WHO}},
        ),
        "models": {model.name: {**_described(model), **model.facts} for model in models},
        "probes": {model.name: probe_answers(model) for model in models},
        "operators": {change.id: change.describe() for change in changes},
        "unsupported": unsupported,
        "execution": how,
        "versions": {name: package_version(name) for name in _VERSIONED},
        "machine": {"python": platform.python_version(), "system": platform.system(), "processor": platform.machine()},
        **_plan(config),
        "created": time.strftime("%Y-%m-%d %H:%M:%S"),
        "seconds": 0.0,
        "finished": False,
    }


def same_settings(store: Store, setup: RunSetup) -> bool:
    """Whether the manifest in the folder has this run's config and models."""
    held, given = store.manifest()["identity"], settings_of(setup.config, setup.models)
    return {key: held.get(key) for key in given} == given


def refuse_other_settings(store: Store, config: RunConfig, models: Sequence[Model]) -> None:
    """Raise if the folder holds results of another config or of other models."""
    if not store.exists("manifest.json") or not store.measured():
        return
    manifest, given = store.manifest(), settings_of(config, models)
    held = {key: manifest["identity"].get(key) for key in given}
    if held != given:
        raise RunError(f"{store.url} holds another run ({first_difference(held, given)}); {_FIXES}")
    if config.plan is not None and _plan(config)["plan"]["sha256"] != manifest.get("plan", {}).get("sha256"):
        began = "another plan" if "plan" in manifest else "no plan"
        raise RunError(f"the run in {store.url} began with {began}; choose another folder with --out for {config.plan}")
    for model in models:
        if change := changed_answer(manifest.get("probes", {}).get(model.name), model):
            raise RunError(f"{store.url} holds another run: model {model.name} answers differently ({change}); {_FIXES}")


def refuse_other_images(store: Store, dataset: Dataset, samples: pa.Table) -> None:
    """Raise if the folder holds results on other images or labels."""
    if not store.exists("manifest.json") or not store.measured():
        return
    held, given = store.manifest()["identity"]["data"], _data(dataset, samples)
    if held != given:
        where = _first_change(store.table("samples"), samples) if store.exists("samples.parquet") else "the images"
        raise RunError(
            f"{where} changed since the run in {store.url} started; restore the data, or choose another folder with --out"
        )


def holds_run(store: Store, setup: RunSetup, samples: pa.Table) -> bool:
    """Whether the folder holds this run, and no other one that was refused before it measured anything."""
    return store.exists("manifest.json") and store.manifest()["identity"] == _identity(setup, samples)


def claim_folder(
    store: Store, setup: RunSetup, samples: pa.Table, fresh: Callable[[], dict[str, Any]], *, alone: bool
) -> dict[str, Any]:
    """Return the manifest of this run: the one in the folder, or a fresh one if no other run has begun there.

    What another run has begun is replaced only if it has measured nothing, and if no other process uses the folder.
    """
    if holds_run(store, setup, samples):
        return store.manifest()
    if not store.exists("manifest.json") and store.create_manifest(fresh()):
        return fresh()
    if holds_run(store, setup, samples):  # another process of the same run was faster
        return store.manifest()
    refuse_other_settings(store, setup.config, setup.models)
    refuse_other_images(store, setup.dataset, samples)
    if not alone:
        difference = first_difference(store.manifest()["identity"], _identity(setup, samples))
        raise RunError(
            f"another run has just begun in {store.url} ({difference}); choose another folder with --out, or delete "
            "that one if nothing is running there"
        )
    for table in ("samples", "clean"):  # of a run that was refused before it measured anything
        store.remove(f"{table}.parquet")
    store.write_manifest(fresh())
    return fresh()


def is_current(store: Store, manifest: dict[str, Any]) -> bool:
    """Whether no other run has started in the folder since this one did."""
    return bool(store.manifest()["identity"] == manifest["identity"])


def refuse_replaced(store: Store, manifest: dict[str, Any]) -> None:
    """Raise if another run has started in the folder: their rows must not mix."""
    if not is_current(store, manifest):
        raise RunError(f"another run was started in {store.url}; choose another folder for one of them with --out")


def _identity(setup: RunSetup, samples: pa.Table) -> dict[str, Any]:
    return {**settings_of(setup.config, setup.models), "data": _data(setup.dataset, samples)}


def settings_of(config: RunConfig, models: Sequence[Model]) -> dict[str, Any]:
    """Return what rows depend on in addition to the images; of the execution options, only the precision."""
    return {
        "config": config.identity(),
        "models": {
            model.name: {
                **_described(model),
                "classes": _digest(model),
                "fingerprint": model.fingerprint,
                **({"code": model.facts["code"]} if "code" in model.facts else {}),
            }
            for model in models
        },
    }


def _plan(config: RunConfig) -> dict[str, Any]:
    """Return what is stored of a test plan: it must have been written before the run."""
    if config.plan is None:
        return {}
    return {"plan": {"file": Path(config.plan).name, "sha256": file_sha256(Path(config.plan))}}


def _digest(model: Model) -> str | None:
    """Return 16 hex digits that identify a model's class list."""
    if model.classes is None:
        return None
    return hashlib.blake2b("\n".join(model.classes.names).encode(), digest_size=8).hexdigest()


def _data(dataset: Dataset, samples: pa.Table) -> dict[str, str]:
    return {"name": dataset.name, "fingerprint": data_fingerprint(samples)}


_UNUSED = {"fill": None, "bgr": False}  # left out, so that runs from before these fields resume


def _described(model: Model) -> dict[str, Any]:
    pre = model.preprocess
    return {
        "outputs": model.outputs,
        "classes": list(model.classes.names) if model.classes is not None else None,
        "input": [pre.channels, pre.height, pre.width],
        "preprocess": {key: value for key, value in to_plain(pre).items() if key not in _UNUSED or value != _UNUSED[key]},
        **({} if model.detector is None else {"detection": model.detector.decoding.settings()}),
        **({"task": model.task} if model.task in ("segmentation", "embedding") else {}),
    }


def first_difference(old: Any, new: Any, where: str = "") -> str:
    """Return the first difference of two identities, for people."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *new]:
            if old.get(key) != new.get(key):
                return first_difference(old.get(key), new.get(key), f"{where}.{key}" if where else key)
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (left, right) in enumerate(zip(old, new, strict=True)):
            if left != right:
                return first_difference(left, right, f"{where}.{index}")
    return f"{where} was {old!r} and is now {new!r}"


def _first_change(old: pa.Table, new: pa.Table) -> str:
    """Return the first image that changed, is gone or is new, for people."""
    columns = ("name", "image", "label", "problem")
    before, after = (list(zip(*(table[name].to_pylist() for name in columns), strict=True)) for table in (old, new))
    here, there = set(before), set(after)
    changed = next((image for image in before if image not in there), None)
    changed = changed or next((image for image in after if image not in here), None)
    return str(changed[0]) if changed else "the order of the images"
