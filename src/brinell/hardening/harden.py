"""The walk of a hardening: originals into parts, training, the model's folder, and both models on the test part."""

from __future__ import annotations

import copy
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from brinell.comparison.compare import Comparison, compare_runs
from brinell.comparison.page import comparison_html
from brinell.datasets.sources import open_dataset
from brinell.engine.progress import Reporter, Silent
from brinell.engine.runner import execute
from brinell.engine.setup import RunSetup
from brinell.engine.shards import worker_count
from brinell.engine.threads import answers
from brinell.errors import ConfigError, DataError
from brinell.hardening import record as records
from brinell.hardening.changes import Augmentation
from brinell.hardening.checkpoints import Standing, weights_of
from brinell.hardening.material import Item, Pictures, Subset, classes_of, read_originals, read_pictures, refuse_leaks
from brinell.hardening.options import HardenConfig
from brinell.hardening.recipes import (
    Network,
    channel_statistics,
    network_of,
    recount,
    require_several,
    require_trainable,
    set_normalised,
)
from brinell.hardening.sources import opened
from brinell.hardening.splits import Part, divided
from brinell.hardening.training import Training, train
from brinell.hardening.verdict import Effect, Verdict, effect_of, verdict_of
from brinell.models.device import select_device
from brinell.models.hardened import FACTS_FILE, WEIGHTS_FILE, HardenedFacts, read_facts, restore
from brinell.models.model import Description, Model
from brinell.models.modules import from_module
from brinell.models.sources import open_model
from brinell.run_config import RunConfig, load_config
from brinell.runs.run import Run
from brinell.runs.store import Store
from brinell.types import Dataset

TEMPLATE = "brinell.hardening:summary.html"
BATCH = 32  # images that models are asked about at once, of held-out failures


@dataclass(frozen=True)
class Hardened:
    """A hardening that was carried out: its folder, the model, and what changed. Shows itself in a notebook."""

    folder: str
    model: Model
    comparison: Comparison
    verdict: Verdict

    @cached_property
    def record(self) -> dict[str, Any]:
        """What was done: config, versions, parts, epochs."""
        content: dict[str, Any] = json.loads(Store(self.folder).read(records.RECORD))
        return content

    def __repr__(self) -> str:
        return f"Hardened({self.folder!r}: {self.verdict.sentence})"

    def _repr_html_(self) -> str:
        return self.verdict._repr_html_()


@dataclass(frozen=True)
class Material:
    """Who is there, and in which part; and who is measured: a dataset, and the same as items."""

    items: list[Item]
    parts: dict[str, Part]
    test: Dataset
    measured: list[Item]

    def of(self, *parts: Part) -> list[Item]:
        """The items of some parts."""
        return [item for item in self.items if self.parts[item.original] in parts]


def harden(
    config: HardenConfig,
    *,
    model: Model | None = None,
    data: Any = None,
    test: Any = None,
    reporter: Reporter | None = None,
) -> Hardened:
    """Carry out a hardening, or what is missing of it. Objects that are given take the place of names."""
    reporter, store = reporter or Silent(), Store(config.folder())
    before = model if model is not None else open_model(config.model, config.execution)
    require_trainable(before)
    if "file" not in store.fs.protocol:
        raise ConfigError(f"out should be a folder on this machine, where the model can be opened again; got {store.url}")
    # what can't be found is told before anything is read or written
    augmentation = Augmentation.of(config.augment, config.seed, before.preprocess.interpolation)
    network = network_of(before, config, select_device(config.execution))
    reporter.say(f"hardening: {store.url}")
    with ThreadPoolExecutor(worker_count(config.execution.workers), "decode") as pool:
        material = _material(config, store, before, data, test, pool, reporter)
        record = records.begun(store, config, before, material.items, material.parts)
        for part, own in record["parts"].items():
            reporter.say(f"{part}: {own['originals']:,} originals, {own['failures']:,} pictures made of them")
        if not (record["finished"] and store.exists(WEIGHTS_FILE)):
            network, standing = _trained(config, store, network, augmentation, material, pool, reporter)
            _write_model(store, config, network, named=model is None)
            record = records.with_training(record, standing) | {"finished": True}
            records.write_record(store, record)
        after = _opened(store, config, before, named=model is None)
        failures = _held_out_failures(material, before, after, pool)
    both = [
        _measured(config, store, name, one, material.test, reporter) for name, one in (("before", before), ("after", after))
    ]
    found = compare_runs(both, [f"{before.name}={after.name}"])
    verdict = verdict_of(found, record["operators"], failures)
    _summarise(store, record, found, verdict)
    return Hardened(store.url, after, found, verdict)


# ---- what there is ----


def _material(
    config: HardenConfig, store: Store, model: Model, data: Any, test: Any, pool: ThreadPoolExecutor, reporter: Reporter
) -> Material:
    dataset = open_dataset(config.data if data is None else data)
    advance = reporter.stage("reading images", len(dataset), "images")
    originals = read_originals(dataset, config.data, model, config.seed, pool, advance)
    items = list(originals)
    for number, options in enumerate(config.failures):
        pictures = opened(options, number, store, model, config.execution, reporter)
        advance = reporter.stage(f"reading failures of {pictures.name}", len(pictures), "images")
        by_index = options.labels == "index"
        items += read_pictures(pictures, by_index, options.unrelated, originals, model, pool, advance)
    shares = config.parts.shares
    if config.test is not None:
        whole = 1 - shares[2]
        shares = (shares[0] / whole, shares[1] / whole, 0.0)
    parts = divided(classes_of(items), shares, config.seed, pool=config.parts.small_classes == "pool")
    if config.test is None:
        measured = [item for item in originals if parts[item.original] == "test"]
        tested: Dataset = Subset(dataset, [item.index for item in measured])
    else:
        tested = open_dataset(config.test if test is None else test)
        advance = reporter.stage("reading test images", len(tested), "images")
        measured = read_originals(tested, config.test, model, config.seed, pool, advance)
        tested = Subset(tested, [item.index for item in measured])
    refuse_leaks(items, parts, measured)
    return Material(items, parts, tested, measured)


# ---- training ----


def _trained(
    config: HardenConfig,
    store: Store,
    network: Network,
    augmentation: Augmentation,
    material: Material,
    pool: ThreadPoolExecutor,
    reporter: Reporter,
) -> tuple[Network, Standing]:
    device, preprocess = select_device(config.execution), network.preprocess
    items = [item for item in material.of("train") if config.training.clean or not item.clean]
    if not items:
        raise DataError("no picture to train on is in the training part; give more failures, or train on clean images, too")
    require_several(network.module, config.training, len(items))
    training = Training(
        network,
        Pictures(items, preprocess, pool, device),
        Pictures(material.of("validation"), preprocess, pool, device),
        augmentation,
        config.training,
        config.seed,
    )
    if config.recipe == "set_normalisation":
        own = channel_statistics(images for _, _, images in training.fed(0))
        clean = Pictures([item for item in material.of("train") if item.clean], preprocess, pool, device)
        usual = channel_statistics(_every(clean)) if len(clean) else own
        network = replace(network, preprocess=set_normalised(preprocess, own, usual))
        training = replace(training, network=network)
    standing = train(training, store, reporter)
    if standing.reason is not None:
        reporter.say(standing.reason)
    if config.recipe == "set_normalisation" and config.training.batch_norm == "update":
        recount(training.network, (images for _, _, images in training.fed(0)))
    return training.network, standing


def _every(pictures: Pictures) -> Iterator[Tensor]:
    for rows in torch.split(torch.arange(len(pictures)), 256):
        yield pictures.inputs(rows)


# ---- the model's folder ----


def _write_model(store: Store, config: HardenConfig, network: Network, *, named: bool) -> None:
    facts = HardenedFacts(
        base=config.model.model_dump(mode="json", exclude_none=True) if named else None,
        mean=network.preprocess.mean,
        std=network.preprocess.std,
        excitation=network.excitation,
    )
    store.write(json.dumps(facts.model_dump(mode="json"), indent=1).encode(), FACTS_FILE)
    store.write(save(weights_of(network.module)), WEIGHTS_FILE)


def _opened(store: Store, config: HardenConfig, before: Model, *, named: bool) -> Model:
    """The hardened model, opened again as anybody would."""
    name = f"{before.name}-hardened"
    if named:
        return open_model({"source": f"hardened:{store.place()}", "name": name}, config.execution)
    folder = Path(store.place())
    facts = read_facts(folder)
    module = restore(copy.deepcopy(require_trainable(before)), facts, folder)
    preprocess = replace(before.preprocess, mean=facts.mean, std=facts.std)
    return from_module(module, Description(name, f"hardened:{store.place()}", preprocess, before.classes), config.execution)


# ---- before and after ----


def _measured(config: HardenConfig, store: Store, name: str, model: Model, test: Dataset, reporter: Reporter) -> Run:
    """Measure one of the two models on the test images; by other lenses than before, in a folder beside."""
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
    there, asked = Store(store.place(name)), run.identity()["lenses"]
    if there.exists("manifest.json") and there.manifest()["identity"]["config"]["lenses"] != asked:
        digest = hashlib.blake2b(json.dumps(asked, sort_keys=True).encode(), digest_size=4).hexdigest()
        run = run.model_copy(update={"out": store.place(f"{name}-{digest}")})
    return execute(RunSetup(run, (model,), open_dataset(test)), reporter)


def _held_out_failures(material: Material, before: Model, after: Model, pool: ThreadPoolExecutor) -> Effect | None:
    """The share of held-out failures that are right, before and after; of each original the mean over its pictures."""
    items = [item for item in material.of("test") if not item.clean]
    if not items:
        return None
    sides = [_by_original(items, model, pool) for model in (before, after)]
    operators = tuple(sorted({item.operator for item in items if item.operator is not None}))
    return effect_of(sides[0], sides[1], "failures", "held-out failures", "failures", operators)


def _by_original(items: Sequence[Item], model: Model, pool: ThreadPoolExecutor) -> np.ndarray[Any, np.dtype[np.float64]]:
    pictures = Pictures(items, model.preprocess, pool, torch.device("cpu"))
    right: dict[str, list[float]] = defaultdict(list)
    for rows in torch.split(torch.arange(len(pictures)), 16 * BATCH):
        found = answers(model, pictures.inputs(rows), BATCH).argmax(1).cpu() == pictures.labels[rows]
        for number, one in zip(rows.tolist(), found.tolist(), strict=True):
            right[items[number].original].append(float(one))
    return np.array([np.mean(own) for own in right.values()])


def _summarise(store: Store, record: dict[str, Any], found: Comparison, verdict: Verdict) -> None:
    told = verdict.to_dict() | {
        "parts": record["parts"],
        "operators": record["operators"],
        "epochs": record["epochs"],
        "kept": record["kept"],
        "stopped": record["stopped"],
        "comparison": found.to_json(),
    }
    store.write(json.dumps(told, indent=1, ensure_ascii=False).encode(), "summary.json")
    page = comparison_html(found, page=TEMPLATE, content={"hardening": {**told, "rows": verdict.rows()}})
    store.write(page.encode(), "summary.html")
