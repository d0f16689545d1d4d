"""Harden a model: split originals, train, write the model, and measure it before and after on the test part."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor

from brinell.comparison.compare import Comparison, compare_runs
from brinell.comparison.page import comparison_html
from brinell.datasets.sources import open_dataset
from brinell.engine.progress import Reporter, Silent
from brinell.engine.runner import execute
from brinell.engine.shards import worker_count
from brinell.errors import ConfigError, DataError
from brinell.hardening import record as records
from brinell.hardening.augment import Augmentation
from brinell.hardening.checkpoints import TrainingState, weights_of
from brinell.hardening.cost import HardeningCost, estimate_cost
from brinell.hardening.effect import HardeningEffect, find_effect
from brinell.hardening.failures import FailureOpener
from brinell.hardening.images import ImageReader, LabelledImage, ModelInputs, Subset, classes_of, refuse_leaks
from brinell.hardening.measuring import measure_failures, measuring_setup
from brinell.hardening.options import HardenConfig
from brinell.hardening.recipes import (
    Network,
    build_network,
    channel_statistics,
    normalise_by_set,
    recompute_batch_norms,
    require_batches,
    require_trainable,
)
from brinell.hardening.splits import Part, split_originals
from brinell.hardening.training import Training, train
from brinell.models.device import select_device
from brinell.models.hardened import FACTS_FILE, WEIGHTS_FILE, HardenedFacts, read_facts, restore
from brinell.models.model import Description, Model
from brinell.models.modules import from_module
from brinell.models.sources import open_model
from brinell.runs.store import Store
from brinell.types import Dataset

TEMPLATE = "brinell.hardening:summary.html"


@dataclass(frozen=True)
class Hardened:
    """A finished hardening: its folder, the model, and the effect. Displays itself in a notebook."""

    folder: str
    model: Model
    comparison: Comparison
    effect: HardeningEffect

    @cached_property
    def record(self) -> dict[str, Any]:
        """Config, versions, parts and epochs."""
        content: dict[str, Any] = json.loads(Store(self.folder).read(records.RECORD))
        return content

    def __repr__(self) -> str:
        return f"Hardened({self.folder!r}: {self.effect.sentence})"

    def _repr_html_(self) -> str:
        return self.effect._repr_html_()


@dataclass(frozen=True)
class HardeningData:
    """All images, the part of each original, and the dataset that is measured."""

    items: list[LabelledImage]
    parts: dict[str, Part]
    test: Dataset

    def of(self, *parts: Part) -> list[LabelledImage]:
        """Return the images of some parts."""
        return [item for item in self.items if self.parts[item.original] in parts]


def harden(
    config: HardenConfig,
    *,
    model: Model | None = None,
    data: Any = None,
    test: Any = None,
    reporter: Reporter | None = None,
    confirm: Callable[[HardeningCost], None] | None = None,
) -> Hardened:
    """Harden a model, or resume. Objects that are given replace the sources in the config.

    `confirm` gets an estimate before anything is trained or written.
    """
    reporter, store = reporter or Silent(), Store(config.folder())
    before = model if model is not None else open_model(config.model, config.execution)
    require_trainable(before)
    if not store.is_local:
        raise ConfigError(f"expected a local folder as out, from which the model can be opened, got {store.url}")
    # unknown operators and layers are reported before anything is read or written
    augmentation = Augmentation.of(config.augment, config.seed, before.preprocess.interpolation)
    network = build_network(before, config, select_device(config.execution))
    reporter.say(f"hardening: {store.url}")
    with ThreadPoolExecutor(worker_count(config.execution.workers), "decode") as pool:
        opener = FailureOpener(store, before, config.execution, reporter)
        images = _read_images(config, ImageReader(before, config.seed, pool, reporter), opener, data, test)
        context = _Context(config, store, pool, reporter)
        training = _prepare(context, network, augmentation, images)
        if confirm is not None and not store.exists(records.RECORD):
            confirm(estimate_cost(training, measuring_setup(config, store, "before", before, images.test)))
        record = records.begin_record(store, config, before, images.items, images.parts)
        for part, own in record["parts"].items():
            reporter.say(f"{part}: {own['originals']:,} originals, {own['failures']:,} images made from them")
        if not (record["finished"] and store.exists(WEIGHTS_FILE)):
            network, state = _train(context, training, images)
            _write_model(store, config, network, named=model is None)
            record = records.with_training(record, state) | {"finished": True}
            records.write_record(store, record)
        after = _open_hardened(store, config, before, named=model is None)
        failures = measure_failures([item for item in images.of("test") if not item.clean], before, after, pool)
    both = (("before", before), ("after", after))
    runs = [execute(measuring_setup(config, store, name, one, images.test), reporter) for name, one in both]
    comparison = compare_runs(runs, [f"{before.name}={after.name}"])
    effect = find_effect(comparison, record["operators"], failures)
    _write_summary(store, record, comparison, effect)
    return Hardened(store.url, after, comparison, effect)


# ---- images ----


def _read_images(config: HardenConfig, reader: ImageReader, opener: FailureOpener, data: Any, test: Any) -> HardeningData:
    """Read originals and failures, and split them."""
    dataset = open_dataset(config.data if data is None else data)
    originals = reader.read_originals(dataset, config.data)
    items = list(originals)
    for number, options in enumerate(config.failures):
        items += reader.read_failures(opener.open(options, number), options, originals)
    shares = config.parts.shares
    if config.test is not None:
        whole = 1 - shares[2]
        shares = (shares[0] / whole, shares[1] / whole, 0.0)
    parts = split_originals(classes_of(items), shares, config.seed, pool=config.parts.small_classes == "pool")
    if config.test is None:
        measured = [item for item in originals if parts[item.original] == "test"]
    else:
        dataset = open_dataset(config.test if test is None else test)
        measured = reader.read_originals(dataset, config.test, "test images")
    refuse_leaks(items, parts, measured)
    return HardeningData(items, parts, Subset(dataset, [item.index for item in measured]))


# ---- training ----


@dataclass(frozen=True)
class _Context:
    """What training runs with."""

    config: HardenConfig
    store: Store
    pool: ThreadPoolExecutor
    reporter: Reporter


def _prepare(context: _Context, network: Network, augmentation: Augmentation, images: HardeningData) -> Training:
    """Return everything that training needs; raise if there is nothing to train on."""
    config, pool = context.config, context.pool
    device, preprocess = select_device(config.execution), network.preprocess
    items = [item for item in images.of("train") if config.training.clean or not item.clean]
    if not items:
        raise DataError("the training part has no images to train on; add failures, or set training.clean to true")
    require_batches(network.module, config.training, len(items))
    return Training(
        network,
        ModelInputs(items, preprocess, pool, device),
        ModelInputs(images.of("validation"), preprocess, pool, device),
        augmentation,
        config.training,
        config.seed,
    )


def _train(context: _Context, training: Training, images: HardeningData) -> tuple[Network, TrainingState]:
    """Train the network; return it with its final preprocessing."""
    config, network = context.config, training.network
    if config.recipe == "set_normalisation":
        preprocess = network.preprocess
        own = channel_statistics(inputs for _, _, inputs in training.batches(0))
        own_images = [item for item in images.of("train") if item.clean]
        clean = ModelInputs(own_images, preprocess, context.pool, training.images.device)
        expected = channel_statistics(_iterate(clean)) if len(clean) else own
        network = replace(network, preprocess=normalise_by_set(preprocess, own, expected))
        training = replace(training, network=network)
    state = train(training, context.store, context.reporter)
    if state.reason is not None:
        context.reporter.say(state.reason)
    if config.recipe == "set_normalisation" and config.training.batch_norm == "update":
        recompute_batch_norms(training.network, (inputs for _, _, inputs in training.batches(0)))
    return training.network, state


def _iterate(inputs: ModelInputs) -> Iterator[Tensor]:
    for rows in torch.split(torch.arange(len(inputs)), 256):
        yield inputs.select(rows)


# ---- the model ----


def _write_model(store: Store, config: HardenConfig, network: Network, *, named: bool) -> None:
    facts = HardenedFacts(
        base=config.model.model_dump(mode="json", exclude_none=True) if named else None,
        mean=network.preprocess.mean,
        std=network.preprocess.std,
        excitation=network.excitation,
    )
    store.write(json.dumps(facts.model_dump(mode="json"), indent=1).encode(), FACTS_FILE)
    store.write(save(weights_of(network.module)), WEIGHTS_FILE)


def _open_hardened(store: Store, config: HardenConfig, before: Model, *, named: bool) -> Model:
    """Return the hardened model, opened from its folder."""
    name = f"{before.name}-hardened"
    if named:
        trusted = config.execution.model_copy(update={"trust": True})  # the folder names the model that the config names
        return open_model({"source": f"hardened:{store.place()}", "name": name}, trusted)
    folder = Path(store.place())
    facts = read_facts(folder)
    module = restore(copy.deepcopy(require_trainable(before)), facts, folder)
    preprocess = replace(before.preprocess, mean=facts.mean, std=facts.std)
    return from_module(module, Description(name, f"hardened:{store.place()}", preprocess, before.classes), config.execution)


# ---- the effect ----


def _write_summary(store: Store, record: dict[str, Any], comparison: Comparison, effect: HardeningEffect) -> None:
    summary = effect.to_json() | {
        "parts": record["parts"],
        "operators": record["operators"],
        "epochs": record["epochs"],
        "kept": record["kept"],
        "stopped": record["stopped"],
        "comparison": comparison.to_json(),
    }
    store.write(json.dumps(summary, indent=1, ensure_ascii=False).encode(), "summary.json")
    page = comparison_html(comparison, page=TEMPLATE, content={"hardening": {**summary, "rows": effect.rows()}})
    store.write(page.encode(), "summary.html")
