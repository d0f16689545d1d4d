"""Executes a run: survey the data, query the clean images, then every unit that has no rows yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby

import pyarrow as pa
import torch
from torch import Tensor

from brinell.engine.budget import decide_share
from brinell.engine.clean import answer_clean, drop_unlabelled, kept_entries, readable, select_kept
from brinell.engine.context import RunContext
from brinell.engine.evaluator import Evaluator
from brinell.engine.exhibits import draw_exhibits
from brinell.engine.growth import StoppingRule, grow, rule_of
from brinell.engine.journal import Journal
from brinell.engine.known import Known
from brinell.engine.labels import find_labels
from brinell.engine.manifest import (
    count_queries,
    refuse_other_images,
    refuse_other_settings,
    refuse_replaced,
)
from brinell.engine.parts import Part, Wanted, missing_parts, units_of
from brinell.engine.progress import Reporter, Silent
from brinell.engine.renderer import Renderer
from brinell.engine.resuming import begin_run, drop_damaged_tables, unusable_units, usable_table
from brinell.engine.rows import write_rows
from brinell.engine.setup import Job, RunSetup, jobs_of, required_truth
from brinell.engine.shards import Entry, Images, give_back_freed_memory, id_numbers, load_images, one_ahead, worker_count
from brinell.engine.survey import NO_MASK, same_metadata, select_indices, survey
from brinell.engine.threads import torch_alone
from brinell.engine.true_masks import true_masks
from brinell.engine.truth import Truth
from brinell.engine.units import JobProgress, fix_unit_size, record_units
from brinell.interrupts import stoppable
from brinell.lenses.method import Columns
from brinell.runs.run import Run
from brinell.runs.store import Store

SCORES = ("confidence", "rank", "probability")  # columns that a model without scores doesn't have


def execute(
    setup: RunSetup,
    reporter: Reporter | None = None,
    on_lens: Callable[[Store, str], None] = lambda store, lens: None,
    early: StoppingRule | None = None,
) -> Run:
    """Execute a run, or what is missing of it, and open it.

    `on_lens` is called when a lens has all its rows. With `early`, images come in a random order until it says stop.
    """
    reporter = reporter or Silent()
    config, began = setup.config, time.monotonic()
    store = Store(config.folder())
    jobs = jobs_of(setup)
    _announce(store, setup, jobs, reporter)
    with stoppable(), torch_alone(), ThreadPoolExecutor(worker_count(config.execution.workers), "decode") as pool:
        refuse_other_settings(store, config, setup.models)
        samples = _samples(setup, pool, reporter)
        refuse_other_images(store, setup.dataset, samples)
        _check(jobs, samples, reporter)
        for model in setup.models:  # raises before anything is written
            if true_masks(setup.dataset, config.data, model) is None:
                find_labels(samples, setup.dataset, config.data, model)
        with begin_run(store, setup, jobs, samples) as manifest:
            context = RunContext(store, setup, samples, manifest, pool, reporter, {})
            with count_queries(store, setup.models, manifest):
                wanted = _execute(context, jobs, on_lens, early)
            manifest["seconds"] = round(manifest["seconds"] + time.monotonic() - began, 1)
            manifest["finished"] = True
            if wanted.share == 1:
                manifest.pop("budget", None)
            store.write_manifest(manifest)
    return Run(store)


def _execute(
    context: RunContext, jobs: Sequence[Job], on_lens: Callable[[Store, str], None], early: StoppingRule | None
) -> Wanted:
    """Measure what is missing, and return the share of the queries that was wanted."""
    store = context.store
    stored = usable_table(context, "samples")
    if stored is None or not same_metadata(stored, context.samples):  # rows don't depend on it, so it may be added later
        store.write_table("samples", context.samples)  # after the manifest: they can't be taken for another run's
    drop_damaged_tables(context)
    clean = _clean(context)
    kept, truth = kept_entries(context.samples, clean), Truth.of(clean)
    rule = early or rule_of(context.setup.config.budget)
    wanted = decide_share(context, jobs, kept, early=rule is not None)
    if rule is not None and (wanted.sampled or not context.manifest["finished"]):
        wanted = grow(context, jobs, kept, wanted, rule, lambda job, now: _measure(context, job, kept, truth, now))
    for lens, mine in groupby(jobs, key=lambda job: job.lens):
        for job in mine:
            _measure(context, job, kept, truth, wanted)
        if lens.reader.finish is not None and (advice := lens.reader.finish(Run(store))) is not None:
            context.reporter.say(advice)
        on_lens(store, lens.name)
    draw_exhibits(Run(store), context)
    return wanted


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
    objects, masks = required_truth(setup)
    strict = setup.config.execution.strict
    table = survey(setup.dataset, indices, pool, strict=strict, advance=advance, objects=objects, masks=masks)
    problems = table["problem"].to_pylist()
    without = 0 if objects is None else problems.count(objects.missing)
    if NO_MASK in problems:
        reporter.say(f"{problems.count(NO_MASK)} of {len(table)} images are skipped: they have no mask")
        without += problems.count(NO_MASK)
    unreadable = len(table) - table["problem"].null_count - without
    if unreadable:
        reporter.say(f"{unreadable} of {len(table)} images can't be read and are skipped (listed in the report)")
    unlabelled = _count_unlabelled(table) if setup.config.data.labels != "prediction" else 0
    if unlabelled:
        reporter.say(f"{unlabelled} of {len(table)} images have no label and are left out")
    if objects is not None and objects.missing in problems:
        reporter.say(f"{without} of {len(table)} images are skipped: {objects.missing}")
    return table


def _count_unlabelled(samples: pa.Table) -> int:
    """Return the number of images that could be read and have no label, unless none has one, which is an error later."""
    usable = samples.filter(samples["problem"].is_null())
    return usable["label"].null_count if usable["label"].null_count < len(usable) else 0


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
    if (stored := usable_table(context, "clean")) is not None:
        return stored
    advance = context.reporter.stage("clean answers", len(readable(context.samples)) * len(models), "images")
    tables = [answer_clean(context, model, advance) for model in models]
    if "warnings" in context.manifest:
        store.write_manifest(context.manifest)
    labelled = drop_unlabelled(
        pa.concat_tables(tables, promote_options="permissive"),
        context.reporter,
        predicted=context.setup.config.data.labels == "prediction",
    )
    table = select_kept(labelled, context.setup.config.select)
    store.write_table("clean", table)
    return table


def _boxes_of(entries: Sequence[Entry]) -> Tensor:
    """Return the objects' boxes in the pixels of their images (N, 4), NaN where unknown."""
    return torch.tensor([entry.box or [torch.nan] * 4 for entry in entries])


def _measure(context: RunContext, job: Job, kept: list[Entry], truth: Truth, wanted: Wanted) -> None:
    """Measure what is missing of every unit of a job."""
    fix_unit_size(context, job, kept)
    for stage in wanted.stages:
        _measure_stage(context, job, kept, truth, stage)


def _measure_stage(context: RunContext, job: Job, kept: list[Entry], truth: Truth, wanted: Wanted) -> None:
    """Measure what is missing of every unit, shard by shard."""
    shards, missing = missing_parts(context.store, job, kept, context.manifest["execution"], wanted)
    record_units(context, job, len(units_of(job, len(shards))))
    held = sorted(set(units_of(job, len(shards))) - {part.unit for part in missing if not part.done})
    damaged = unusable_units(context, held)
    if damaged:
        again = replace(wanted, damaged=frozenset(damaged))
        missing = missing_parts(context.store, job, kept, context.manifest["execution"], again)[1]
    if not missing:
        return
    most = {part.unit: part.trials(job, shards[part.unit.shard]) for part in missing}
    progress = JobProgress(context.reporter, job, most, {part.unit: len(part.samples) for part in missing})
    parts = {number: list(own) for number, own in groupby(missing, key=lambda part: part.unit.shard)}
    batch = context.batch(job.model)

    def load(number: int) -> tuple[int, list[int], Images]:
        samples = sorted({sample for part in parts[number] for sample in part.samples})
        return number, samples, _load(context, job, [shards[number][sample] for sample in samples])

    for number, loaded, images in one_ahead(load, parts):
        shard, evaluators = shards[number], dict[tuple[int, ...], Evaluator]()
        for part in parts[number]:
            if not part.samples:  # none of its images was chosen
                write_rows(
                    context.store,
                    part,
                    shard,
                    torch.zeros(0),
                    {"sample": torch.zeros(0, dtype=torch.int64)},
                    job.lens.reader,
                )
                progress.finish(part.unit, 0)
                continue
            if part.samples not in evaluators:
                entries, chosen = [shard[sample] for sample in part.samples], _select(images, loaded, part.samples)
                evaluators[part.samples] = make_evaluator(context, job, entries, chosen, truth, batch, progress.queried)
            evaluator = evaluators[part.samples]
            before = evaluator.queries
            _measure_part(context, job, evaluator, part, shard, most[part.unit])
            progress.finish(part.unit, evaluator.queries - before)
            batch = evaluator.batch  # what memory allowed here holds for the next shard
        del evaluators, images  # or they would stay until the next ones are loaded


def _select(images: Images, loaded: list[int], samples: tuple[int, ...]) -> Images:
    """Return the images of samples, from those that were loaded."""
    if len(samples) == len(loaded):
        return images
    places = [loaded.index(sample) for sample in samples]
    return Images(images.inputs[places], [images.originals[place] for place in places] if images.originals else [])


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
    masks = true_masks(context.setup.dataset, context.setup.config.data, model)
    given = None if masks is None else masks.load(entries, context.pool)
    known = Known(truth.regions_of(model, entries), _boxes_of(entries), given)
    labels = truth.labels_of(model, entries)
    return Evaluator(model, renderer, labels, criterion=job.criterion(), batch=batch, advance=advance, known=known)


def _measure_part(
    context: RunContext, job: Job, evaluator: Evaluator, part: Part, shard: Sequence[Entry], most: int
) -> None:
    """Measure one change and write its rows. What a long unit has computed is kept in a journal while it runs."""
    store, began = context.store, time.perf_counter()
    journal = Journal(store, part.unit, trials=most > (job.method.trials_per_unit or most), share=(part.done, part.share))
    try:
        known = evaluator.shard(part.sampling, lambda name: store.read_if_there(job.lens.name, *name.split("/")))
        columns = evaluator.drive(job.method.measure(known, part.change, job.options), journal)
    except BaseException:
        journal.flush()
        raise
    if job.method.timed:
        columns["seconds"] = _constant(columns, (time.perf_counter() - began) / len(part.samples))
    if not job.model.scores:
        columns = {name: column for name, column in columns.items() if name not in SCORES}
    refuse_replaced(store, context.manifest)
    write_rows(store, part, shard, evaluator.labels.cpu(), columns, job.lens.reader)
    journal.clear()
    give_back_freed_memory()


def _constant(columns: Columns, value: float) -> Tensor:
    """Return a column with the same value in every row."""
    samples = columns["sample"]
    assert isinstance(samples, Tensor)
    return torch.full(samples.shape, value)
