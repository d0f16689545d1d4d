"""Measures what is missing of a job's units, shard by shard, and writes their rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import torch
from torch import Tensor

from brinell.engine.context import RunContext
from brinell.engine.evaluator import Evaluator
from brinell.engine.found import Known
from brinell.engine.journal import Journal
from brinell.engine.manifest import refuse_replaced
from brinell.engine.missing import Chosen, Part, Wanted, everything, missing_parts, units_of
from brinell.engine.renderer import Renderer
from brinell.engine.resuming import unusable_units
from brinell.engine.rows import write_rows
from brinell.engine.setup import Job
from brinell.engine.shards import Entry, Images, give_back_freed_memory, id_numbers, load_images, one_ahead
from brinell.engine.truth.masks import true_masks
from brinell.engine.truth.objects import Truth
from brinell.engine.units import JobProgress, fix_unit_size, record_units
from brinell.engine.writing import Writer
from brinell.lenses.method import Columns

SCORES = ("confidence", "rank", "probability")  # columns that a model without scores doesn't have


def _boxes_of(entries: Sequence[Entry]) -> Tensor:
    """Return the objects' boxes in the pixels of their images (N, 4), NaN where unknown."""
    return torch.tensor([entry.box or [torch.nan] * 4 for entry in entries])


@dataclass(frozen=True)
class Measurer:
    """Measures units of a run on the images that are kept. `chosen` says which shards this process measures."""

    context: RunContext
    kept: list[Entry]
    truth: Truth
    chosen: Chosen = everything

    def measure(self, job: Job, wanted: Wanted) -> None:
        """Measure what is missing of the units of a job."""
        fix_unit_size(self.context, job, self.kept)
        for stage in wanted.stages:
            _measure_stage(self.context, job, self.kept, self.truth, stage, self.chosen)


def _measure_stage(context: RunContext, job: Job, kept: list[Entry], truth: Truth, wanted: Wanted, chosen: Chosen) -> None:
    """Measure what is missing of every chosen unit, shard by shard."""
    execution = context.manifest["execution"]
    shards, missing = missing_parts(context.store, job, kept, execution, wanted, chosen)
    record_units(context, job, len(shards) * len(job.changes))
    held = set(units_of(job, len(shards), chosen)) - {part.unit for part in missing if not part.done}
    damaged = unusable_units(context, sorted(held))
    if damaged:
        again = replace(wanted, damaged=frozenset(damaged))
        missing = missing_parts(context.store, job, kept, execution, again, chosen)[1]
    if not missing:
        return
    most = {part.unit: part.trials(job, shards[part.unit.shard]) for part in missing}
    progress = JobProgress(context.reporter, job, most, {part.unit: len(part.samples) for part in missing})
    parts = {number: list(own) for number, own in groupby(missing, key=lambda part: part.unit.shard)}
    batch = context.batch(job.model)

    def load(number: int) -> tuple[int, list[int], Images]:
        samples = sorted({sample for part in parts[number] for sample in part.samples})
        return number, samples, _load(context, job, [shards[number][sample] for sample in samples])

    with Writer() as writer:
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
                    entries, own = [shard[sample] for sample in part.samples], _select(images, loaded, part.samples)
                    evaluators[part.samples] = make_evaluator(context, job, entries, own, truth, batch, progress)
                evaluator = evaluators[part.samples]
                progress.begin(part.unit)
                before = evaluator.queries
                writer(_measure_part(context, job, evaluator, part, shard, most[part.unit]))
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
    ready = {} if originals else context.ready.inputs(preprocess)
    return load_images(context.setup.dataset, entries, preprocess, context.pool, with_originals=originals, ready=ready)


def make_evaluator(
    context: RunContext,
    job: Job,
    entries: list[Entry],
    images: Images,
    truth: Truth,
    batch: int,
    progress: JobProgress | None = None,
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
    report = {} if progress is None else {"advance": progress.queried, "end": progress.ended}
    return Evaluator(model, renderer, labels, criterion=job.criterion(), batch=batch, known=known, **report)


def _measure_part(
    context: RunContext, job: Job, evaluator: Evaluator, part: Part, shard: Sequence[Entry], most: int
) -> Callable[[], None]:
    """Measure one change, and return what writes its rows. What a long unit has computed is in a journal until then."""
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
    labels = evaluator.labels.cpu()

    def write() -> None:
        refuse_replaced(store, context.manifest)
        write_rows(store, part, shard, labels, columns, job.lens.reader)
        journal.clear()
        give_back_freed_memory()

    return write


def _constant(columns: Columns, value: float) -> Tensor:
    """Return a column with the same value in every row."""
    samples = columns["sample"]
    assert isinstance(samples, Tensor)
    return torch.full(samples.shape, value)
