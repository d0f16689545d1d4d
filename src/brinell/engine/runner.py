"""The walk of one run: names to objects, what is missing, units one after the other, rows to the store."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from brinell.config.saliency import AttentionOptions
from brinell.criteria.criterion import Criterion, find_criterion
from brinell.datasets.objects import object_rule
from brinell.datasets.sources import open_dataset
from brinell.engine.clean import answer_clean, keep, label_indices, readable
from brinell.engine.evaluator import Bench
from brinell.engine.exhibits import write_exhibits
from brinell.engine.journal import Journal
from brinell.engine.manifest import counted, new_manifest, refuse_other_images, refuse_other_settings
from brinell.engine.progress import Reporter, Silent
from brinell.engine.rows import write_rows
from brinell.engine.shards import Entry, Images, give_back_freed_memory, id_numbers, load_images, one_ahead, worker_count
from brinell.engine.survey import chosen, survey
from brinell.engine.threads import torch_alone
from brinell.engine.truth import Objects, Truth, objects_of
from brinell.errors import ConfigError
from brinell.lenses.lens import LENSES, Change, Columns, Lens, LensOptions
from brinell.lenses.profile.precision import precisions, require_evaluation
from brinell.lenses.tasks import MotionSearch
from brinell.models.activations import activations
from brinell.models.model import Model
from brinell.models.probe import probe_images
from brinell.models.sources import open_model
from brinell.run_config import RunConfig
from brinell.runs.names import title
from brinell.runs.schema import Unit
from brinell.runs.store import Store
from brinell.saliency.compare import attend
from brinell.types import Dataset

ANSWERED_SCORES = ("confidence", "rank", "probability")


@dataclass(frozen=True)
class Parts:
    """A run's names as objects."""

    config: RunConfig
    models: tuple[Model, ...]
    dataset: Dataset


@dataclass(frozen=True)
class Job:
    """What one lens asks of one model: the operators it can be asked with, and those it can't, with the reason."""

    lens: Lens
    options: LensOptions
    model: Model
    operators: tuple[Change, ...]
    left_out: dict[str, str]

    @property
    def unit(self) -> str:
        """What is counted."""
        return "windows" if self.lens.counted else "images"

    def most(self, operator: Change, entries: Sequence[Entry]) -> int:
        """How many trials images take, at most."""
        model_input = self.model.preprocess.height, self.model.preprocess.width
        if self.lens.counted is None:
            return len(entries) * self.lens.trials(self.options, operator, *model_input)
        sizes = Counter(entry.size for entry in entries)
        return sum(count * self.lens.counted(self.options, operator, size, model_input) for size, count in sizes.items())


@dataclass(frozen=True)
class Walk:
    """What the steps of a run share; `ready` are inputs that needn't be decoded again, by their place in the dataset."""

    store: Store
    parts: Parts
    samples: pa.Table
    manifest: dict[str, Any]
    pool: ThreadPoolExecutor
    reporter: Reporter
    ready: dict[int, Tensor]

    def batch(self, model: Model) -> int:
        """How many images a model is asked about at once."""
        return int(self.manifest["execution"]["batch"][model.name])


def assemble(config: RunConfig, models: Sequence[Model] | None = None, dataset: Any = None) -> Parts:
    """Open what a config names; objects that are given take the place of names."""
    opened = tuple(models) if models is not None else tuple(open_model(m, config.execution) for m in config.models)
    return Parts(config, opened, open_dataset(config.data if dataset is None else dataset))


def jobs_of(parts: Parts) -> list[Job]:
    """Every lens with every model. An operator that a model can't serve is left out of "all", and refused by name."""
    jobs = []
    for options in parts.config.lenses:
        lens = LENSES[options.name]
        operators = list(lens.operators(options))
        for model in parts.models:
            criterion = _criterion(options, model)
            if _evaluated(lens, model):
                require_evaluation()
            if criterion.detections and model.detector is None:
                raise ConfigError(
                    f"criterion {criterion.name} is for detectors, and model {model.name} is a classifier; use another "
                    "(brinell ls criteria), or say that it is one with task=detection"
                )
            if criterion.scores and not model.scores:
                raise ConfigError(
                    f"criterion {criterion.name} needs scores, and model {model.name} gives labels alone; use "
                    "misclassification, or let its mapping say where the scores are"
                )
            refused = [op for op in operators if op.white_box and model.differentiable is None]
            named = [op for op in refused if options.names(op)]
            if named:
                what, fix = f"operator {named[0].name}", "leave out one of the two"
                if isinstance(named[0], MotionSearch):
                    what, fix = named[0].method, "use the methods random, grid or manitest"
                kind = "it is a detector" if model.detector is not None else "it is no torch model"
                raise ConfigError(f"{what} needs gradients, and model {model.name} gives none ({kind}); {fix}")
            reasons = {op.id: "the model gives no gradients" for op in refused}
            able = tuple(op for op in operators if op.id not in reasons)
            jobs.append(Job(lens, options, model, able, reasons))
    return jobs


def _criterion(options: LensOptions, model: Model) -> Criterion:
    return find_criterion(options.criterion, model.classes, model.outputs, detector=model.detector is not None)


def execute(parts: Parts, reporter: Reporter | None = None) -> Store:
    """Carry out a run, or what is missing of it, and give its store."""
    reporter = reporter or Silent()
    config, began = parts.config, time.monotonic()
    store = Store(config.folder())
    jobs = jobs_of(parts)
    reporter.say(f"run: {store.url}")
    for model in parts.models:
        if "slower" in model.facts:
            reporter.say(f"{model.name} runs in eager torch, which may be several times slower: {model.facts['slower']}")
    for job in jobs:
        for why in dict.fromkeys(job.left_out.values()):
            names = ", ".join(title(name) for name, own in job.left_out.items() if own == why)
            reporter.say(f"{job.model.name}: {names} left out, as {why}")
    with torch_alone(), ThreadPoolExecutor(worker_count(config.execution.workers), "decode") as pool:
        refuse_other_settings(store, config, parts.models)
        samples = _samples(parts, pool, reporter)
        refuse_other_images(store, parts.dataset, samples)
        manifest = _begin(store, parts, jobs, samples)
        with counted(store, parts.models, manifest):
            _fit(jobs, samples, reporter)
            walk = Walk(store, parts, samples, manifest, pool, reporter, {})
            clean = _clean(walk)
            kept, truth = _kept(samples, clean), Truth.of(clean)
            for job in jobs:
                _measure(walk, job, kept, truth)
            write_exhibits(store, parts.dataset, parts.models, config.seed, pool)
            _evaluate(store, jobs)
            if config.attention is not None:
                attend(store, config, parts.models, parts.dataset, config.attention, pool, reporter)
                manifest["attention"] = store.manifest()["attention"]
    manifest["seconds"] = round(manifest["seconds"] + time.monotonic() - began, 1)
    manifest["finished"] = True
    store.write_manifest(manifest)
    return store


def look(store: Store, how: AttentionOptions, parts: Parts, reporter: Reporter | None = None) -> None:
    """Compare attention in a run that is there; `parts` are its models and its data."""
    reporter = reporter or Silent()
    with torch_alone(), ThreadPoolExecutor(worker_count(parts.config.execution.workers), "decode") as pool:
        refuse_other_settings(store, parts.config, parts.models)
        attend(store, parts.config, parts.models, parts.dataset, how, pool, reporter)


def _evaluate(store: Store, jobs: list[Job]) -> None:
    """Compute the average precision of detectors from the rows, once: it takes longer than other figures."""
    if any(_evaluated(job.lens, job.model) for job in jobs) and not store.exists("precision.parquet"):
        store.write_table("precision", precisions(store.connect()))


def _evaluated(lens: Lens, model: Model) -> bool:
    return lens.name == "profile" and model.detector is not None


def _samples(parts: Parts, pool: ThreadPoolExecutor, reporter: Reporter) -> pa.Table:
    indices = chosen(parts.dataset, parts.config.data, parts.config.seed)
    advance = reporter.stage("reading images", len(indices), "images")
    objects = object_rule(parts.config.data, any(model.detector is not None for model in parts.models))
    strict = parts.config.execution.strict
    table = survey(parts.dataset, indices, pool, strict=strict, advance=advance, objects=objects)
    without = 0 if objects is None else table["problem"].to_pylist().count(objects.missing)
    unreadable = len(table) - table["problem"].null_count - without
    if unreadable:
        reporter.say(f"{unreadable} of {len(table)} images can't be read and are left out (listed in the report)")
    if without and objects is not None:
        reporter.say(f"{without} of {len(table)} images are left out: {objects.missing}")
    return table


def _begin(store: Store, parts: Parts, jobs: list[Job], samples: pa.Table) -> dict[str, Any]:
    """The manifest of the run in this folder, which is there or is written now, and then the samples."""
    if store.exists("manifest.json"):
        manifest = store.manifest()
    else:
        left_out = [
            {"model": job.model.name, "operator": operator, "reason": reason}
            for job in jobs
            for operator, reason in job.left_out.items()
        ]
        manifest = new_manifest(parts.config, parts.models, parts.dataset, samples, left_out)
        store.write_manifest(manifest)
    if parts.config.execution.batch is not None:
        manifest["execution"]["batch"] = dict.fromkeys(manifest["execution"]["batch"], parts.config.execution.batch)
    if not store.exists("samples.parquet"):  # after the manifest, so that they can't be taken for another run's
        store.write_table("samples", samples)
    return manifest


def _clean(walk: Walk) -> pa.Table:
    """The clean answers. The inputs of the first shard to come stay `ready`, so that it begins without decoding."""
    store, parts, samples = walk.store, walk.parts, walk.samples

    def keep_first(entries: Sequence[Entry], inputs: Tensor) -> None:
        room = walk.manifest["execution"]["shard"] - len(walk.ready)
        walk.ready.update((entry.index, model_input) for entry, model_input in zip(entries[:room], inputs, strict=False))

    if store.exists("clean.parquet"):
        return store.table("clean")
    entries = readable(samples)
    advance = walk.reporter.stage("clean answers", len(entries) * len(parts.models), "images")
    tables = []
    for model in parts.models:
        labels = label_indices(samples, parts.dataset, parts.config.data, model)
        objects: dict[int, Objects] = {}
        if model.detector is not None:
            objects, unknown = objects_of(samples, parts.dataset, parts.config.data, model)
            if unknown:
                shown = ", ".join(unknown[:5]) + (", …" if len(unknown) > 5 else "")
                walk.reporter.say(
                    f"{model.name} doesn't know {len(unknown)} of the objects' classes, which don't count: {shown}"
                )
        seen = keep_first if model is parts.models[0] else None
        batch = walk.batch(model)
        tables.append(
            answer_clean(
                model, parts.dataset, entries, labels, objects, batch=batch, pool=walk.pool, advance=advance, seen=seen
            )
        )
    table = keep(pa.concat_tables(tables, promote_options="permissive"), parts.config.select)
    store.write_table("clean", table)
    return table


def _kept(samples: pa.Table, clean: pa.Table) -> list[Entry]:
    kept = {index for index, keep in zip(clean["index"].to_pylist(), clean["kept"].to_pylist(), strict=True) if keep}
    return [entry for entry in readable(samples) if entry.index in kept]


def _fit(jobs: list[Job], samples: pa.Table, reporter: Reporter) -> None:
    """Say which images a lens can't measure, or stop here if it can measure none."""
    sizes = torch.tensor([entry.size for entry in readable(samples)])
    for job in jobs:
        layers = getattr(job.options, "layers", ())
        if layers and job.model.detector is None:
            activations(job.model, probe_images(job.model.preprocess), layers)  # or why they can't be shown
        if job.lens.fits is not None:
            for line in job.lens.fits(job.options, sizes, (job.model.preprocess.height, job.model.preprocess.width)):
                reporter.say(f"{line} ({job.model.name})")


def _unit_size(job: Job, entries: list[Entry], most: int) -> int:
    """Images a unit: as many as a shard holds, or the lens wants."""
    most = min(most, job.lens.unit or most)
    if job.lens.trials_a_unit is None or not entries:
        return most
    trials = max(job.most(operator, entries) for operator in job.operators) / len(entries)
    return max(1, min(most, int(job.lens.trials_a_unit / max(1, trials))))


def _boxes_of(entries: Sequence[Entry]) -> Tensor:
    """Where objects are in the images' own pixels (N, 4), NaN where nobody knows."""
    return torch.tensor([entry.box or [torch.nan] * 4 for entry in entries])


def _shards(entries: list[Entry], size: int) -> list[list[Entry]]:
    return [entries[start : start + size] for start in range(0, len(entries), size)]


def _measure(walk: Walk, job: Job, kept: list[Entry], truth: Truth) -> None:
    """Ask for every unit of a job that has no rows yet, shard by shard."""
    shards = _shards(kept, _unit_size(job, kept, walk.manifest["execution"]["shard"]))
    units = [
        Unit(job.lens.name, job.model.name, operator.id, shard)
        for shard in range(len(shards))
        for operator in job.operators
    ]
    missing = set(walk.store.missing(units))
    if not missing:
        return
    asked = sorted({unit.shard for unit in missing})
    most = {
        unit: job.most(operator, shards[number]) for number in asked for unit, operator in _units_of(job, number, missing)
    }
    advance = walk.reporter.stage(f"{job.lens.name} of {job.model.name}", sum(most.values()), job.unit)
    batch, first = walk.batch(job.model), walk.parts.models[0]

    def load(number: int) -> tuple[int, Images]:
        preprocess, originals = job.model.preprocess, job.lens.originals
        ready = walk.ready if preprocess == first.preprocess and not originals else {}
        dataset, pool = walk.parts.dataset, walk.pool
        return number, load_images(dataset, shards[number], preprocess, pool, with_originals=originals, ready=ready)

    for number, images in one_ahead(load, asked):
        entries = shards[number]
        bench = Bench(
            job.model,
            images.inputs,
            id_numbers(entries),
            truth.labels_of(job.model, entries),
            criterion=_criterion(job.options, job.model),
            seed=walk.parts.config.seed,
            batch=batch,
            advance=advance,
            regions=truth.regions_of(job.model, entries),
            originals=images.originals,
            boxes=_boxes_of(entries),
        )
        for unit, operator in _units_of(job, number, missing):
            asked_before = bench.asked
            _measure_unit(walk.store, job, bench, unit, operator, entries, most[unit])
            advance(most[unit] - (bench.asked - asked_before))  # what a search could spare
        batch = bench.batch  # what memory allowed here holds for the next shard
        del bench, images  # or they would stay until the next ones are there


def _measure_unit(
    store: Store, job: Job, bench: Bench, unit: Unit, operator: Change, entries: Sequence[Entry], most: int
) -> None:
    """Let the lens ask about one operator, and write what it found. The answers to a long unit are kept while it lasts."""
    began = time.perf_counter()
    journal = Journal(store, unit) if most > (job.lens.trials_a_unit or most) else None
    columns = bench.drive(job.lens.ask(bench.shard(), operator, job.options), journal)
    if job.lens.timed:
        columns["seconds"] = _each(columns, (time.perf_counter() - began) / len(entries))
    if not job.model.scores:  # nobody knows them
        columns = {name: column for name, column in columns.items() if name not in ANSWERED_SCORES}
    write_rows(store, unit, entries, bench.labels.cpu(), columns)
    if journal is not None:
        journal.clear()
    give_back_freed_memory()


def _each(columns: Columns, value: float) -> Tensor:
    """A column that says the same in every row."""
    samples = columns["sample"]
    assert isinstance(samples, Tensor)
    return torch.full(samples.shape, value)


def _units_of(job: Job, shard: int, missing: set[Unit]) -> Iterator[tuple[Unit, Change]]:
    for operator in job.operators:
        unit = Unit(job.lens.name, job.model.name, operator.id, shard)
        if unit in missing:
            yield unit, operator
