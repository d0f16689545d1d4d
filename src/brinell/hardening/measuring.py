"""Measure a model on the test images, before hardening and after: runs of the config's lenses, and held-out failures."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from brinell.comparison.resampling import Array
from brinell.datasets.sources import open_dataset
from brinell.engine.setup import RunSetup
from brinell.engine.threads import answers
from brinell.hardening.effect import GroupEffect, Subject, effect_of
from brinell.hardening.images import LabelledImage, ModelInputs
from brinell.hardening.options import HardenConfig
from brinell.models.model import Model
from brinell.run_config import RunConfig, load_config
from brinell.runs.store import Store
from brinell.types import Dataset

BATCH = 32  # held-out failures per query


def measuring_setup(config: HardenConfig, store: Store, name: str, model: Model, test: Dataset) -> RunSetup:
    """Return the run of a model on the test images; if the lenses have changed, in another folder."""
    options = config.data if config.test is None else config.test
    run: RunConfig = load_config(
        {
            "models": [{"source": model.facts.get("source", "object:model"), "name": model.name}],
            "data": {"source": f"object:{options.source}", "labels": options.labels},
            "lenses": [lens.model_dump(mode="json") for lens in config.measure],
            "seed": config.seed,
            "out": store.place(name),
            "execution": config.execution.model_dump(mode="json"),
        }
    )
    existing, lenses = Store(store.place(name)), run.identity()["lenses"]
    if existing.exists("manifest.json") and existing.manifest()["identity"]["config"]["lenses"] != lenses:
        digest = hashlib.blake2b(json.dumps(lenses, sort_keys=True).encode(), digest_size=4).hexdigest()
        run = run.model_copy(update={"out": store.place(f"{name}-{digest}")})
    return RunSetup(run, (model,), open_dataset(test))


def measure_failures(
    items: Sequence[LabelledImage], before: Model, after: Model, pool: ThreadPoolExecutor
) -> GroupEffect | None:
    """Return the effect on held-out failures: the share that is right, averaged within each original."""
    if not items:
        return None
    old, new = (_accuracy_by_original(items, model, pool) for model in (before, after))
    operators = tuple(sorted({item.operator for item in items if item.operator is not None}))
    return effect_of(old, new, Subject("failures", "held-out failures", "failures", operators))


def _accuracy_by_original(items: Sequence[LabelledImage], model: Model, pool: ThreadPoolExecutor) -> Array:
    inputs = ModelInputs(items, model.preprocess, pool, torch.device("cpu"))
    right: dict[str, list[float]] = defaultdict(list)
    for rows in torch.split(torch.arange(len(inputs)), 16 * BATCH):
        found = answers(model, inputs.select(rows), BATCH).argmax(1).cpu() == inputs.labels[rows]
        for number, one in zip(rows.tolist(), found.tolist(), strict=True):
            right[items[number].original].append(float(one))
    return np.array([np.mean(own) for own in right.values()])
