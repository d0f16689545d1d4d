"""Executes a run: survey the data, query the clean images, then every unit that has no rows yet."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor

from brinell.datasets.objects import object_rule
from brinell.engine.clean import answer_clean, readable, select_kept
from brinell.engine.context import RunContext
from brinell.engine.evaluator import Evaluator, Known
from brinell.engine.exhibits import draw_exhibits
from brinell.engine.journal import Journal
from brinell.engine.manifest import count_queries, new_manifest, refuse_other_images, refuse_other_settings
from brinell.engine.pace import Pace, unit_size
from brinell.engine.progress import Reporter, Silent
from brinell.engine.renderer import Renderer
from brinell.engine.rows import write_rows
from brinell.engine.setup import Job, RunSetup, jobs_of
from brinell.engine.shards import Entry, Images, give_back_freed_memory, id_numbers, load_images, one_ahead, worker_count
from brinell.engine.survey import select_indices, survey
from brinell.engine.threads import torch_alone
from brinell.engine.truth import Truth
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
        manifest = _begin(store, setup, jobs, samples)
        with count_queries(store, setup.models, manifest):
            _check(jobs, samples, reporter)
            context = RunContext(store, setup, samples, manifest, pool, reporter, {})
            clean = _clean(context)
            kept, truth = _kept(samples, clean), Truth.of(clean)
            for lens, mine in groupby(jobs, key=lambda job: job.lens):
                for job in mine:
                    _measure(context, job, kept, truth)
                if lens.reader.finish is not None:
                    lens.reader.finish(Run(store))
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
    if store.exists("manifest.json"):
        manifest = store.manifest()
    else:
        manifest = new_manifest(setup, jobs, samples)
        store.write_manifest(manifest)
    if setup.config.execution.batch is not None:
        manifest["execution"]["batch"] = dict.fromkeys(manifest["execution"]["batch"], setup.config.execution.batch)
    if not store.exists("samples.parquet"):  # after the manifest, so that they can't be taken for another run's
        store.write_table("samples", samples)
    return manifest


def _check(jobs: list[Job], samples: pa.Table, reporter: Reporter) -> None:
    """Warn about images that a lens can't measure, or raise if it can measure none."""
    sizes = torch.tensor([entry.size for entry in readable(samples)])
    for job in jobs:
        if job.method.check is not None:
            for warning in job.method.check(job.options, job.model, sizes):
                reporter.say(f"{warning} ({job.model.name})")


def _clean(context: RunContext) -> pa.Table:
    """Return the clean answers of all models, and which images are kept."""
    store, models = context.store, context.setup.models
    if store.exists("clean.parquet"):
        return store.table("clean")
    advance = context.reporter.stage("clean answers", len(readable(context.samples)) * len(models), "images")
    tables = [answer_clean(context, model, advance) for model in models]
    table = select_kept(pa.concat_tables(tables, promote_options="permissive"), context.setup.config.select)
    store.write_table("clean", table)
    return table


def _kept(samples: pa.Table, clean: pa.Table) -> list[Entry]:
    kept = {index for index, keep in zip(clean["index"].to_pylist(), clean["kept"].to_pylist(), strict=True) if keep}
    return [entry for entry in readable(samples) if entry.index in kept]


def _boxes_of(entries: Sequence[Entry]) -> Tensor:
    """Return the objects' boxes in the pixels of their images (N, 4), NaN where unknown."""
    return torch.tensor([entry.box or [torch.nan] * 4 for entry in entries])


def _measure(context: RunContext, job: Job, kept: list[Entry], truth: Truth) -> None:
    """Measure every unit of a job that has no rows yet, shard by shard."""
    size = unit_size(context, job, kept)
    shards = [kept[start : start + size] for start in range(0, len(kept), size)]
    units = [unit for number in range(len(shards)) for unit, _ in _units_of(job, number)]
    missing = set(context.store.missing(units))
    if not missing:
        return
    numbers = sorted({unit.shard for unit in missing})
    most = {
        unit: job.trials(change, shards[number])
        for number in numbers
        for unit, change in _units_of(job, number)
        if unit in missing
    }
    progress = _Progress(context.reporter, job, most, shards)
    batch = context.batch(job.model)

    def load(number: int) -> tuple[int, Images]:
        return number, _load(context, job, shards[number])

    for number, images in one_ahead(load, numbers):
        entries = shards[number]
        evaluator = _evaluator(context, job, entries, images, truth, batch, progress.queried)
        for unit, change in _units_of(job, number):
            if unit in missing:
                before = evaluator.queries
                _measure_unit(context.store, job, evaluator, unit, change, entries, most[unit])
                progress.finish(unit, evaluator.queries - before)
        batch = evaluator.batch  # what memory allowed here holds for the next shard
        del evaluator, images  # or they would stay until the next ones are loaded


class _Progress:
    """Reports the progress of a job: its trials, or where only the end shows how many a search needs, its searches."""

    def __init__(self, reporter: Reporter, job: Job, trials: Mapping[Unit, int], shards: Sequence[Sequence[Entry]]) -> None:
        self._trials, self._images = trials, {unit: len(shards[unit.shard]) for unit in trials}
        what, self._searches = f"{job.lens.name}: {job.model.name}", job.method.search
        if not self._searches:
            self._advance = reporter.stage(what, sum(trials.values()), job.unit)
            return
        each: Counter[str] = Counter()
        for unit, count in self._images.items():
            each[unit.operator] += count
        self._pace = Pace(each)
        self._advance = reporter.stage(what, sum(each.values()), "searches", self._pace.seconds_left)

    def queried(self, count: int) -> None:
        """Report queries."""
        if not self._searches:
            self._advance(count)

    def finish(self, unit: Unit, queries: int) -> None:
        """Report a unit whose rows are written, after a number of queries."""
        if not self._searches:
            self._advance(self._trials[unit] - queries)  # those that were not needed
            return
        self._pace.finish(unit.operator, self._images[unit])
        self._advance(self._images[unit])


def _load(context: RunContext, job: Job, entries: list[Entry]) -> Images:
    preprocess, originals = job.model.preprocess, job.method.with_originals
    first = context.setup.models[0]
    ready = context.ready if preprocess == first.preprocess and not originals else {}
    return load_images(context.setup.dataset, entries, preprocess, context.pool, with_originals=originals, ready=ready)


def _evaluator(
    context: RunContext, job: Job, entries: list[Entry], images: Images, truth: Truth, batch: int, advance: Any
) -> Evaluator:
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
    store: Store, job: Job, evaluator: Evaluator, unit: Unit, change: Change, entries: Sequence[Entry], most: int
) -> None:
    """Measure one change and write its rows. What a long unit has computed is kept in a journal while it runs."""
    began = time.perf_counter()
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
