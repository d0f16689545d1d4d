"""Executes a run: survey the data, query the clean images, then every unit that has no rows yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby

import pyarrow as pa
import torch

from brinell.datasets.objects import ObjectRule
from brinell.engine.budget import decide_share
from brinell.engine.clean import answer_clean, drop_unlabelled, kept_entries, readable, select_kept
from brinell.engine.context import RunContext
from brinell.engine.early_stop import StoppingRule, grow, rule_of
from brinell.engine.exhibits import draw_exhibits
from brinell.engine.manifest import refuse_other_images, refuse_other_settings, settings_of
from brinell.engine.measuring import Measurer
from brinell.engine.missing import Wanted, everything
from brinell.engine.parts.part import PartReporter, end_part, gather, units_left
from brinell.engine.parts.tables import clean_together, survey_together
from brinell.engine.progress import Reporter, Silent
from brinell.engine.queries import count_queries
from brinell.engine.ready import Ready
from brinell.engine.rehearsal import rehearsing
from brinell.engine.resuming import begin_run, drop_damaged_tables, usable_table
from brinell.engine.setup import Job, RunSetup, jobs_of, required_truth
from brinell.engine.shards import worker_count
from brinell.engine.survey import NO_MASK, Survey, same_metadata, select_indices
from brinell.engine.threads import torch_alone
from brinell.engine.truth.labels import find_labels
from brinell.engine.truth.masks import true_masks
from brinell.engine.truth.objects import Truth
from brinell.engine.units import count_units
from brinell.engine.workers.coordinator import connected, measure_with_workers, refuse_objects
from brinell.errors import ConfigError
from brinell.interrupts import stoppable
from brinell.runs.parts import PartFile, settings_digest
from brinell.runs.run import Run
from brinell.runs.store import UNFINISHED, Store


def execute(
    setup: RunSetup,
    reporter: Reporter | None = None,
    on_lens: Callable[[Run, str], None] = lambda run, lens: None,
    early: StoppingRule | None = None,
    open_run: Callable[[Store], Run] = Run,
) -> Run:
    """Execute a run, or what is missing of it, and open it. Of a run in parts, one part, and the rest if it is the last.

    `on_lens` is called when a lens has all its rows, with the run, which `open_run` opens only once, so that its tables are
    shared. With `early`, images come in a random order until it says stop.
    """
    reporter = reporter or Silent()
    config, began = setup.config, time.monotonic()
    store = Store(config.folder())
    jobs = jobs_of(setup)
    _announce(store, setup, jobs, reporter)
    rule = early or rule_of(config.budget)
    part = _part(store, setup, rule)
    if part is not None:
        reporter = PartReporter(reporter, part)
    decoding = ThreadPoolExecutor(worker_count(config.execution.workers), "decode")
    with stoppable(), connected(config.execution), torch_alone(), decoding as pool:
        refuse_other_settings(store, config, setup.models)
        with rehearsing(_not_begun(store, setup, jobs), config.execution.batch):
            samples, ready = _samples(setup, pool, reporter, part)
        refuse_other_images(store, setup.dataset, samples)
        _check(jobs, samples, reporter)
        for model in setup.models:  # raises before anything is written
            if true_masks(setup.dataset, config.data, model) is None:
                find_labels(samples, setup.dataset, config.data, model)
        with begin_run(store, setup, jobs, samples) as manifest:
            context = RunContext(store, setup, samples, manifest, pool, reporter, ready, part)
            with count_queries(context):
                clean = _prepare(context)
                run = open_run(store)
                wanted = _measure(context, clean, jobs, run, on_lens, rule)
            if wanted is not None:
                _finish(context, wanted, time.monotonic() - began)
    run.refresh_manifest()
    return run


def _part(store: Store, setup: RunSetup, rule: StoppingRule | None) -> PartFile | None:
    """Return the record of the part to measure; None: everything. Raise if the run can't be divided."""
    part = setup.config.execution.part_of_run()
    if rule is not None and (part is not None or setup.config.execution.spread):
        raise ConfigError(
            "a run that stops early looks at all rows as they come, in one process; leave out --part, --devices and "
            "--on, or give the budget as a share (0.1) or a number of queries"
        )
    if setup.config.execution.spread:
        refuse_objects(setup)
    if part is None:
        return None
    return PartFile(store, settings_digest(settings_of(setup.config, setup.models)), part)


def _not_begun(store: Store, setup: RunSetup, jobs: Sequence[Job]) -> Sequence[Job]:
    """Return the jobs that this process will measure, if the run is a new one."""
    return () if setup.config.execution.spread or store.exists("manifest.json") else jobs


def _prepare(context: RunContext) -> pa.Table:
    """Store the samples, and return the clean answers."""
    stored = usable_table(context, "samples")
    if stored is None or not same_metadata(stored, context.samples):  # rows don't depend on it, so it may be added later
        context.store.write_table("samples", context.samples)  # after the manifest: they can't be taken for another run's
    if context.part is None:
        drop_damaged_tables(context)
    return _clean(context)


def _measure(
    context: RunContext,
    clean: pa.Table,
    jobs: Sequence[Job],
    run: Run,
    on_lens: Callable[[Run, str], None],
    rule: StoppingRule | None,
) -> Wanted | None:
    """Measure what is missing, and return the share of the queries that was wanted; None if other parts are not done."""
    part = context.part
    kept = kept_entries(context.samples, clean)
    measurer = Measurer(context, kept, Truth.of(clean), everything if part is None else part.part.owns)
    several = context.setup.config.execution.spread
    if part is not None or several:
        count_units(context, jobs, kept)
    wanted = decide_share(context, jobs, kept, early=rule is not None)
    if rule is not None and (wanted.sampled or not context.manifest["finished"]):
        wanted = grow(context, jobs, kept, wanted, rule, measurer.measure)
    if several:
        measure_with_workers(measurer, jobs, wanted)
    if part is not None:
        for job in jobs:
            measurer.measure(job, wanted)
        if left := units_left(context, jobs, kept, wanted):
            context.reporter.say(end_part(part, left))
            return None
        drop_damaged_tables(context)
    for lens, mine in groupby(jobs, key=lambda job: job.lens):
        if part is None:
            for job in mine:
                measurer.measure(job, wanted)
        run.refresh()
        if lens.reader.finish is not None and (advice := lens.reader.finish(run)) is not None:
            context.reporter.say(advice)
        on_lens(run, lens.name)
    draw_exhibits(run, context)
    return wanted


def _finish(context: RunContext, wanted: Wanted, seconds: float) -> None:
    """Store that the run is finished."""
    manifest = context.manifest
    context.store.remove(
        UNFINISHED
    )  # of units that two workers had, or whose process was killed when it had written the rows
    gather(context, seconds)
    manifest["finished"] = True
    if wanted.share == 1:
        manifest.pop("budget", None)
    context.store.write_manifest(manifest)


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


def _samples(
    setup: RunSetup, pool: ThreadPoolExecutor, reporter: Reporter, part: PartFile | None
) -> tuple[pa.Table, Ready]:
    """Survey the images and say which can't be used; those that can are made ready for the first model."""
    indices = select_indices(setup.dataset, setup.config.data, setup.config.seed)
    advance = reporter.stage("reading images", len(indices), "images")
    objects, masks = required_truth(setup)
    ready = Ready.for_model(setup.models[0])
    survey = Survey(setup.dataset, indices, pool, setup.config.execution.strict, objects, masks, ready.add)
    found = None if setup.ahead is None else setup.ahead.finish(survey, advance)
    if setup.ahead is not None and found is None:
        advance = reporter.stage("reading images", len(indices), "images")
    if found is not None:
        table, ready = survey.checked(found[0]), found[1]
    else:
        table = survey.table(advance) if part is None else survey_together(survey, setup, part, advance)
    _say_unusable(table, setup, objects, reporter)
    return table, ready


def _say_unusable(table: pa.Table, setup: RunSetup, objects: ObjectRule | None, reporter: Reporter) -> None:
    """Say how many images are left out, and why."""
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
    part = context.part
    tables = [
        answer_clean(context, model, advance) if part is None else clean_together(context, model, part, advance)
        for model in models
    ]
    if "warnings" in context.manifest:
        context.save("warnings")
    labelled = drop_unlabelled(
        pa.concat_tables(tables, promote_options="permissive"),
        context.reporter,
        predicted=context.setup.config.data.labels == "prediction",
    )
    table = select_kept(labelled, context.setup.config.select)
    store.write_table("clean", table)
    return table
