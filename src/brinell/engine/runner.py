"""Executes a run: survey the data, query the clean images, then every unit that has no rows yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from brinell.datasets.objects import object_rule
from brinell.engine.clean import answer_clean, drop_unlabelled, readable, select_kept
from brinell.engine.context import RunContext
from brinell.engine.evaluator import Evaluator, Known
from brinell.engine.exhibits import draw_exhibits
from brinell.engine.journal import Journal
from brinell.engine.labels import find_labels
from brinell.engine.manifest import (
    count_queries,
    holds_run,
    new_manifest,
    refuse_other_images,
    refuse_other_settings,
    refuse_replaced,
)
from brinell.engine.progress import Reporter, Silent
from brinell.engine.renderer import Renderer
from brinell.engine.rows import write_rows
from brinell.engine.setup import Job, RunSetup, jobs_of
from brinell.engine.shards import Entry, Images, give_back_freed_memory, id_numbers, load_images, one_ahead, worker_count
from brinell.engine.survey import select_indices, survey
from brinell.engine.threads import torch_alone
from brinell.engine.truth import Truth
from brinell.engine.units import JobProgress, fix_unit_size, unit_size
from brinell.lenses.method import Columns
from brinell.perturb.change import Change
from brinell.runs.run import Run
from brinell.runs.schema import Unit
from brinell.runs.store import Store

SCORES = ("confidence", "rank", "probability")  # columns that a model without scores doesn't have


def execute(
    setup: RunSetup, reporter: Reporter | None = None, on_lens: Callable[[Store, str], None] = lambda store, lens: None
) -> Run:
    """Execute a run, or what is missing of it, and open it. `on_lens` is called when a lens has all its rows."""
    reporter = reporter or Silent()
    config, began = setup.config, time.monotonic()
    store = Store(config.folder())
    jobs = jobs_of(setup)
    _announce(store, setup, jobs, reporter)
    with torch_alone(), ThreadPoolExecutor(worker_count(config.execution.workers), "decode") as pool:
        refuse_other_settings(store, config, setup.models)
        samples = _samples(setup, pool, reporter)
        refuse_other_images(store, setup.dataset, samples)
        _check(jobs, samples, reporter)
        for model in setup.models:
            find_labels(samples, setup.dataset, config.data, model)  # raises before anything is written
        manifest = _begin(store, setup, jobs, samples)
        with count_queries(store, setup.models, manifest):
            context = RunContext(store, setup, samples, manifest, pool, reporter, {})
            clean = _clean(context)
            kept, truth = _kept(samples, clean), Truth.of(clean)
            for lens, mine in groupby(jobs, key=lambda job: job.lens):
                for job in mine:
                    _measure(context, job, kept, truth)
                if lens.reader.finish is not None and (advice := lens.reader.finish(Run(store))) is not None:
                    reporter.say(advice)
                on_lens(store, lens.name)
            draw_exhibits(Run(store), setup, pool)
    manifest["seconds"] = round(manifest["seconds"] + time.monotonic() - began, 1)
    manifest["finished"] = True
    store.write_manifest(manifest)
    return Run(store)


def _announce(store: Store, setup: RunSetup, jobs: Sequence[Job], reporter: Reporter) -> None:
    reporter.say(f"run: {store.url}")
    for model in setup.models:
        if "slower" in model.facts:
            reporter.say(f"{model.name} runs in eager torch, which can be several times slower: {model.facts['slower']}")
    for job in jobs:
        titles = {change.id: change.title for change in job.method.changes(job.options)} if job.unsupported else {}
        for reason in dict.fromkeys(job.unsupported.values()):
            names = ", ".join(titles[name] for name, own in job.unsupported.items() if own == reason)
            reporter.say(f"{job.model.name}: skipping {names}, because {reason}")


def _samples(setup: RunSetup, pool: ThreadPoolExecutor, reporter: Reporter) -> pa.Table:
    indices = select_indices(setup.dataset, setup.config.data, setup.config.seed)
    advance = reporter.stage("reading images", len(indices), "images")
    objects = object_rule(setup.config.data, any(model.detector is not None for model in setup.models))
    strict = setup.config.execution.strict
    table = survey(setup.dataset, indices, pool, strict=strict, advance=advance, objects=objects)
    without = 0 if objects is None else table["problem"].to_pylist().count(objects.missing)
    unreadable = len(table) - table["problem"].null_count - without
    if unreadable:
        reporter.say(f"{unreadable} of {len(table)} images can't be read and are skipped (listed in the report)")
    if without and objects is not None:
        reporter.say(f"{without} of {len(table)} images are skipped: {objects.missing}")
    return table


def _begin(store: Store, setup: RunSetup, jobs: list[Job], samples: pa.Table) -> dict[str, Any]:
    """Return the manifest of the run in this folder; a new one is written first, and then the samples."""
    if holds_run(store, setup, samples):
        manifest = store.manifest()
    else:
        manifest = new_manifest(setup, jobs, samples)
        refuse_other_settings(store, setup.config, setup.models)  # again: another run may have started meanwhile
        refuse_other_images(store, setup.dataset, samples)
        for table in ("samples", "clean"):  # of a run that was refused before it measured anything
            store.remove(f"{table}.parquet")
        store.write_manifest(manifest)
    if setup.config.execution.batch is not None:
        manifest["execution"]["batch"] = dict.fromkeys(manifest["execution"]["batch"], setup.config.execution.batch)
    if not store.exists("samples.parquet"):  # after the manifest, so that they can't be taken for another run's
        store.write_table("samples", samples)
    return manifest


def _check(jobs: list[Job], samples: pa.Table, reporter: Reporter) -> None:
    """Warn about images that a lens can't measure, or raise if it can measure none."""
    sizes = torch.tensor([entry.size for entry in readable(samples)])
    warnings: dict[str, list[str]] = {}  # of all models, each once
    for job in jobs:
        if job.method.check is not None:
            for warning in job.method.check(job.options, job.model, sizes):
                warnings.setdefault(warning, []).append(job.model.name)
    everyone = {job.model.name for job in jobs}
    for warning, models in warnings.items():
        reporter.say(warning if everyone == set(models) else f"{warning} ({', '.join(models)})")


def _clean(context: RunContext) -> pa.Table:
    """Return the clean answers of all models, and which images are kept."""
    store, models = context.store, context.setup.models
    if store.exists("clean.parquet"):
        return store.table("clean")
    advance = context.reporter.stage("clean answers", len(readable(context.samples)) * len(models), "images")
    tables = [answer_clean(context, model, advance) for model in models]
    if "warnings" in context.manifest:
        store.write_manifest(context.manifest)
    labelled = drop_unlabelled(pa.concat_tables(tables, promote_options="permissive"), context.reporter)
    table = select_kept(labelled, context.setup.config.select)
    store.write_table("clean", table)
    return table


def _kept(samples: pa.Table, clean: pa.Table) -> list[Entry]:
    kept = {index for index, keep in zip(clean["index"].to_pylist(), clean["kept"].to_pylist(), strict=True) if keep}
    return [entry for entry in readable(samples) if entry.index in kept]


def missing_units(
    store: Store, job: Job, kept: list[Entry], execution: Mapping[str, Any]
) -> tuple[list[list[Entry]], set[Unit]]:
    """Return the images of a job's units, and the units that have no rows yet."""
    size = unit_size(execution, job, kept)
    shards = [kept[start : start + size] for start in range(0, len(kept), size)]
    units = [unit for number in range(len(shards)) for unit, _ in _units_of(job, number)]
    return shards, set(store.missing(units))


def share_left(store: Store, job: Job) -> float:
    """Return the share of a job's trials that are still to do, in a folder that holds its run."""
    if not store.exists("samples.parquet") or not store.exists("clean.parquet"):
        return 1.0
    kept = _kept(store.table("samples"), store.table("clean"))
    shards, missing = missing_units(store, job, kept, store.manifest()["execution"])
    changes = {change.id: change for change in job.changes}
    left = sum(job.trials(changes[unit.operator], shards[unit.shard]) for unit in missing)
    total = sum(job.trials(change, kept) for change in job.changes)
    return left / total if total else float(bool(missing))


def _boxes_of(entries: Sequence[Entry]) -> Tensor:
    """Return the objects' boxes in the pixels of their images (N, 4), NaN where unknown."""
    return torch.tensor([entry.box or [torch.nan] * 4 for entry in entries])


def _measure(context: RunContext, job: Job, kept: list[Entry], truth: Truth) -> None:
    """Measure every unit of a job that has no rows yet, shard by shard."""
    fix_unit_size(context, job, kept)
    shards, missing = missing_units(context.store, job, kept, context.manifest["execution"])
    if not missing:
        return
    numbers = sorted({unit.shard for unit in missing})
    most = {
        unit: job.trials(change, shards[number])
        for number in numbers
        for unit, change in _units_of(job, number)
        if unit in missing
    }
    progress = JobProgress(context.reporter, job, most, shards)
    batch = context.batch(job.model)

    def load(number: int) -> tuple[int, Images]:
        return number, _load(context, job, shards[number])

    for number, images in one_ahead(load, numbers):
        entries = shards[number]
        evaluator = make_evaluator(context, job, entries, images, truth, batch, progress.queried)
        for unit, change in _units_of(job, number):
            if unit in missing:
                before = evaluator.queries
                _measure_unit(context, job, evaluator, unit, change, entries, most[unit])
                progress.finish(unit, evaluator.queries - before)
        batch = evaluator.batch  # what memory allowed here holds for the next shard
        del evaluator, images  # or they would stay until the next ones are loaded


def _load(context: RunContext, job: Job, entries: list[Entry]) -> Images:
    preprocess, originals = job.model.preprocess, job.method.with_originals
    first = context.setup.models[0]
    ready = context.ready if preprocess == first.preprocess and not originals else {}
    return load_images(context.setup.dataset, entries, preprocess, context.pool, with_originals=originals, ready=ready)


def make_evaluator(
    context: RunContext,
    job: Job,
    entries: list[Entry],
    images: Images,
    truth: Truth,
    batch: int,
    advance: Callable[[int], None] = lambda done: None,
) -> Evaluator:
    """Return the evaluator of a job on a shard's images."""
    model = job.model
    renderer = Renderer(
        model.preprocess,
        images.inputs,
        id_numbers(entries),
        seed=context.setup.config.seed,
        originals=images.originals,
        device=model.device,
    )
    known = Known(truth.regions_of(model, entries), _boxes_of(entries))
    labels = truth.labels_of(model, entries)
    return Evaluator(model, renderer, labels, criterion=job.criterion(), batch=batch, advance=advance, known=known)


def _measure_unit(
    context: RunContext, job: Job, evaluator: Evaluator, unit: Unit, change: Change, entries: Sequence[Entry], most: int
) -> None:
    """Measure one change and write its rows. What a long unit has computed is kept in a journal while it runs."""
    store, began = context.store, time.perf_counter()
    journal = Journal(store, unit, trials=most > (job.method.trials_per_unit or most))
    try:
        columns = evaluator.drive(job.method.measure(evaluator.shard(), change, job.options), journal)
    except BaseException:
        journal.flush()
        raise
    if job.method.timed:
        columns["seconds"] = _constant(columns, (time.perf_counter() - began) / len(entries))
    if not job.model.scores:
        columns = {name: column for name, column in columns.items() if name not in SCORES}
    refuse_replaced(store, context.manifest)
    write_rows(store, unit, entries, evaluator.labels.cpu(), columns, job.lens.reader.columns)
    journal.clear()
    give_back_freed_memory()


def _constant(columns: Columns, value: float) -> Tensor:
    """Return a column with the same value in every row."""
    samples = columns["sample"]
    assert isinstance(samples, Tensor)
    return torch.full(samples.shape, value)


def _units_of(job: Job, shard: int) -> Iterator[tuple[Unit, Change]]:
    for change in job.changes:
        yield Unit(job.lens.name, job.model.name, change.id, shard), change
