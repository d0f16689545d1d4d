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

from brinell.attention import AttentionOptions
from brinell.boxes import Detections
from brinell.config import RunConfig
from brinell.criteria import Criterion, find_criterion
from brinell.datasets import open_dataset
from brinell.engine.attention import attend
from brinell.engine.bench import Bench
from brinell.engine.clean import answer_clean, keep, label_indices, readable
from brinell.engine.exhibits import write_exhibits
from brinell.engine.journal import Journal
from brinell.engine.manifest import counted, new_manifest, refuse_other_images, refuse_other_settings
from brinell.engine.progress import Reporter, Silent
from brinell.engine.shards import Entry, Images, give_back_freed_memory, id_numbers, load_images, one_ahead, worker_count
from brinell.engine.survey import chosen, survey
from brinell.engine.threads import torch_alone
from brinell.engine.truth import Objects, objects_of
from brinell.errors import ConfigError
from brinell.lenses import LENSES, Change, Files, Known, Lens, LensOptions, Words
from brinell.lenses.lens import Columns
from brinell.lenses.stage import MotionSearch
from brinell.models import Model, open_model, require_layers
from brinell.results import ROWS, Store, Unit, precisions, require_evaluation
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
        canvas = self.model.preprocess.height, self.model.preprocess.width
        if self.lens.counted is None:
            return len(entries) * self.lens.trials(self.options, operator, *canvas)
        sizes = Counter(entry.size for entry in entries)
        return sum(count * self.lens.counted(self.options, operator, size, canvas) for size, count in sizes.items())


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
    with torch_alone(), ThreadPoolExecutor(worker_count(config.execution.workers), "decode") as pool:
        refuse_other_settings(store, config, parts.models)
        samples = _samples(parts, pool, reporter)
        refuse_other_images(store, parts.dataset, samples)
        manifest = _begin(store, parts, jobs, samples)
        with counted(store, parts.models, manifest):
            _fit(jobs, samples, reporter)
            ready: dict[int, Tensor] = {}
            clean = _clean(store, parts, samples, manifest, pool, reporter, ready)
            _measure(store, parts, jobs, samples, clean, manifest, pool, reporter, ready)
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
    tick = reporter.stage("reading images", len(indices), "images")
    objects = parts.config.data.objects(any(model.detector is not None for model in parts.models))
    strict = parts.config.execution.strict
    table = survey(parts.dataset, indices, pool, strict=strict, tick=tick, objects=objects)
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


def _clean(
    store: Store,
    parts: Parts,
    samples: pa.Table,
    manifest: dict[str, Any],
    pool: ThreadPoolExecutor,
    reporter: Reporter,
    ready: dict[int, Tensor],
) -> pa.Table:
    """The clean answers. The canvases of the first shard to come stay `ready`, so that it begins without decoding."""

    def keep_first(entries: Sequence[Entry], canvases: Tensor) -> None:
        room = manifest["execution"]["shard"] - len(ready)
        ready.update((entry.index, canvas) for entry, canvas in zip(entries[:room], canvases, strict=False))

    if store.exists("clean.parquet"):
        return store.table("clean")
    entries = readable(samples)
    tick = reporter.stage("clean answers", len(entries) * len(parts.models), "images")
    tables = []
    for model in parts.models:
        labels = label_indices(samples, parts.dataset, parts.config.data, model)
        batch = manifest["execution"]["batch"][model.name]
        objects: dict[int, Objects] = {}
        if model.detector is not None:
            objects, unknown = objects_of(samples, parts.dataset, parts.config.data, model)
            if unknown:
                shown = ", ".join(unknown[:5]) + (", …" if len(unknown) > 5 else "")
                reporter.say(
                    f"{model.name} doesn't know {len(unknown)} of the objects' classes, which don't count: {shown}"
                )
        seen = keep_first if model is parts.models[0] else None
        tables.append(
            answer_clean(model, parts.dataset, entries, labels, objects, batch=batch, pool=pool, tick=tick, seen=seen)
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
            require_layers(job.model, layers)
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


def _labels(clean: pa.Table) -> dict[tuple[str, int], int]:
    """What counts as right, by model and place in the dataset."""
    columns = (clean[name].to_pylist() for name in ("model", "index", "label"))
    return {(model, index): label for model, index, label in zip(*columns, strict=True)}


def _regions(clean: pa.Table) -> dict[tuple[str, int], list[float]]:
    """Where preferred objects are, by model and place in the dataset."""
    columns = (clean[name].to_pylist() for name in ("model", "index", "region"))
    return {(model, index): region for model, index, region in zip(*columns, strict=True) if region is not None}


def _regions_of(model: Model, entries: Sequence[Entry], regions: dict[tuple[str, int], list[float]]) -> Tensor:
    """A shard's regions (N, 4), NaN where there is none."""
    return torch.tensor([regions.get((model.name, entry.index), [torch.nan] * 4) for entry in entries])


def _measure(
    store: Store,
    parts: Parts,
    jobs: list[Job],
    samples: pa.Table,
    clean: pa.Table,
    manifest: dict[str, Any],
    pool: ThreadPoolExecutor,
    reporter: Reporter,
    ready: dict[int, Tensor],
) -> None:
    """Ask for every unit that has no rows yet."""
    labels, regions, kept = _labels(clean), _regions(clean), _kept(samples, clean)
    for job in jobs:
        shards = _shards(kept, _unit_size(job, kept, manifest["execution"]["shard"]))
        units = [
            Unit(job.lens.name, job.model.name, operator.id, shard)
            for shard in range(len(shards))
            for operator in job.operators
        ]
        missing = set(store.missing(units))
        if not missing:
            continue
        asked = sorted({unit.shard for unit in missing})
        most = {
            unit: job.most(operator, shards[number])
            for number in asked
            for unit, operator in _units_of(job, number, missing)
        }
        tick = reporter.stage(f"{job.lens.name} of {job.model.name}", sum(most.values()), job.unit)
        batch = manifest["execution"]["batch"][job.model.name]

        def load(number: int, job: Job = job, shards: list[list[Entry]] = shards) -> tuple[int, Images]:
            preprocess, originals = job.model.preprocess, job.lens.originals
            made = ready if preprocess == parts.models[0].preprocess and not originals else {}
            images = load_images(parts.dataset, shards[number], preprocess, pool, with_originals=originals, ready=made)
            return number, images

        for number, images in one_ahead(load, asked):
            entries = shards[number]
            truth = torch.tensor([labels[job.model.name, entry.index] for entry in entries])
            bench = Bench(
                job.model,
                images.canvases,
                id_numbers(entries),
                truth,
                criterion=_criterion(job.options, job.model),
                seed=parts.config.seed,
                batch=batch,
                tick=tick,
                regions=_regions_of(job.model, entries, regions),
                originals=images.originals,
                boxes=_boxes_of(entries),
            )
            for unit, operator in _units_of(job, number, missing):
                asked_before, began = bench.asked, time.perf_counter()
                journal = Journal(store, unit) if most[unit] > (job.lens.trials_a_unit or most[unit]) else None
                columns = bench.drive(job.lens.ask(bench.shard(), operator, job.options), journal)
                if job.lens.timed:
                    columns["seconds"] = _each(columns, (time.perf_counter() - began) / len(entries))
                if not job.model.scores:  # nobody knows them
                    columns = {name: column for name, column in columns.items() if name not in ANSWERED_SCORES}
                tick(most[unit] - (bench.asked - asked_before))  # what a search could spare
                _write(store, unit, entries, truth, columns)
                if journal is not None:
                    journal.clear()
                give_back_freed_memory()
            batch = bench.batch  # what memory allowed here holds for the next shard
            del bench, images  # or they would stay until the next ones are there


def _each(columns: Columns, value: float) -> Tensor:
    """A column that says the same in every row."""
    samples = columns["sample"]
    assert isinstance(samples, Tensor)
    return torch.full(samples.shape, value)


def _write(store: Store, unit: Unit, entries: Sequence[Entry], labels: Tensor, columns: Columns) -> None:
    """Store what a lens found: its files first, so that rows speak of nothing that isn't there."""
    files = columns.pop("files", None)
    if isinstance(files, Files):
        for name, content in files.content.items():
            store.write(content, unit.lens, *name.split("/"))
    store.write_unit(unit, rows_table(unit, entries, labels, columns))


def _units_of(job: Job, shard: int, missing: set[Unit]) -> Iterator[tuple[Unit, Change]]:
    for operator in job.operators:
        unit = Unit(job.lens.name, job.model.name, operator.id, shard)
        if unit in missing:
            yield unit, operator


def rows_table(unit: Unit, entries: Sequence[Entry], labels: Tensor, columns: Columns) -> pa.Table:
    """A lens's columns as rows of the common schema; columns it doesn't have are null."""
    samples = columns["sample"]
    assert isinstance(samples, Tensor)
    sample = samples.numpy()
    count = len(sample)
    named = {"lens": unit.lens, "model": unit.model, "operator": unit.operator}
    detections = columns.get("detections")
    lists = _lists(detections) if isinstance(detections, Detections) else {}
    arrays = []
    for field in ROWS:
        if field.name in named:
            indices = pa.array([0] * count, pa.int32())
            arrays.append(pa.DictionaryArray.from_arrays(indices, [named[field.name]]))
        elif field.name == "image":
            ids = [entry.image for entry in entries]
            arrays.append(pa.DictionaryArray.from_arrays(pa.array(sample, pa.int32()), ids))
        elif field.name == "label":
            arrays.append(pa.array(labels.numpy()[sample]).cast(field.type))
        elif field.name in lists:
            arrays.append(lists[field.name])
        elif field.name in columns:
            column = columns[field.name]
            assert not isinstance(column, Detections | Files)
            arrays.append(_array(column, field.type))
        else:
            arrays.append(pa.nulls(count, field.type))
    return pa.table(arrays, schema=ROWS)


def _lists(detections: Detections) -> dict[str, pa.Array]:
    """Detections as list columns, without the free places."""
    there = (detections.labels >= 0).cpu()
    ends = pa.array([0, *there.sum(1).cumsum(0).tolist()], pa.int32())
    values = {
        "detected_boxes": pa.FixedSizeListArray.from_arrays(detections.boxes.cpu()[there].flatten().numpy(), 4),
        "detected_labels": pa.array(detections.labels.cpu()[there].to(torch.int16).numpy()),
        "detected_scores": pa.array(detections.scores.cpu()[there].numpy()),
    }
    return {name: pa.ListArray.from_arrays(ends, each).cast(ROWS.field(name).type) for name, each in values.items()}


def _array(column: Tensor | Known | Words, kind: pa.DataType) -> pa.Array:
    if isinstance(column, Words):
        places = column.places.numpy()
        return pa.DictionaryArray.from_arrays(pa.array(places, pa.int32(), mask=places < 0), list(column.words))
    if isinstance(column, Known) and column.values.ndim == 2:
        values = [row if known else None for row, known in zip(column.values.tolist(), column.known.tolist(), strict=True)]
        return pa.array(values, kind)
    if isinstance(column, Known):
        return pa.array(column.values.numpy(), mask=~column.known.numpy()).cast(kind)
    return pa.array(column.cpu().numpy()).cast(kind)
