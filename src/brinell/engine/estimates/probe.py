"""Measures how fast a lens advances on this machine: a few images go through it for some seconds. Nothing is stored."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from brinell.engine.clean import answer_clean, readable
from brinell.engine.context import RunContext
from brinell.engine.evaluator import Evaluator
from brinell.engine.measuring import make_evaluator
from brinell.engine.progress import Silent
from brinell.engine.setup import Job, RunSetup, required_truth
from brinell.engine.shards import Entry, Images, load_images, worker_count
from brinell.engine.survey import Survey
from brinell.engine.truth.labels import NO_LABEL
from brinell.engine.truth.objects import Truth
from brinell.lenses.method import Measuring
from brinell.perturb.change import Change
from brinell.runs.store import Store

IMAGES = {"cpu": 8, "cuda": 64}  # that stand for all
COMPILING = {"cuda", "mps"}  # devices whose kernels are compiled or tuned when they first run: that is not timed
TOGETHER = 4  # images that a sketch leaves time for: few fill no batch
PATIENCE, SHORTEST = 2.0, 10.0  # how much longer first searches may take; seconds that they may take in any case


@dataclass(frozen=True)
class Pace:
    """The cost of a change: the `share` of the largest number of trials that images needed (None: no search ended in time),
    the `seconds` per trial, and how many `images` the share comes from.
    """

    share: float | None
    seconds: float
    images: int = 0


@dataclass
class _Tally:
    """Trials and seconds of a change so far, and the most trials that were possible; the same of searches that ended."""

    trials: int = 0
    seconds: float = 0.0
    most: int = 0
    ended: int = 0
    ended_most: int = 0
    ended_images: int = 0
    images: int = 0
    turns: int = 0

    @property
    def alone(self) -> bool:
        """Whether images were measured by ones and twos, which fill no batch."""
        return self.images < TOGETHER * self.turns

    def pace(self, faster: float) -> Pace | None:
        """Return what was measured; None if nothing was. Many images together are `faster` than few."""
        if not self.most:
            return None
        seconds = self.seconds / (self.trials or self.most)
        share = self.ended / self.ended_most if self.ended_most else None
        return Pace(share, seconds / faster if self.alone else seconds, self.ended_images)


class _Limits(NamedTuple):
    """When a probe has to end, when the first search of each change has to, and the model's trials per second."""

    until: float
    latest: float
    rate: float


@dataclass(frozen=True)
class Probe:
    """Images that stand for all, what models answer on them, and the seconds that reading one takes."""

    context: RunContext
    entries: list[Entry]
    truth: Truth
    seconds: float

    def paces(self, job: Job, rate: float, seconds: float) -> dict[str, Pace]:
        """Return the pace of each change of a job, measured in about so many seconds; cheap changes come first.

        The first search of each change may take longer, so that it ends. Where there is time for few images only, all of
        them go through one of the changes, to see how much faster full batches are.
        """
        tallies = {change.id: _Tally() for change in job.changes}
        changes = sorted(job.changes, key=lambda change: job.trials(change, self.entries))
        began = time.perf_counter()
        until, latest = began + seconds, began + max(PATIENCE * seconds, SHORTEST)
        images = load_images(
            self.context.setup.dataset,
            self.entries,
            job.model.preprocess,
            self.context.pool,
            with_originals=job.method.with_originals,
        )
        self._visit(job, changes, images, tallies, _Limits(until, latest, rate))
        faster = self._speed_up(job, changes, images, tallies)
        paces = {name: tally.pace(faster) for name, tally in tallies.items()}
        return {name: pace for name, pace in paces.items() if pace is not None}

    def _visit(
        self,
        job: Job,
        changes: Sequence[Change],
        images: Images,
        tallies: Mapping[str, _Tally],
        limits: _Limits,
    ) -> None:
        """Measure some images of each change in turn."""
        until, latest, rate = limits
        first = dict.fromkeys(tallies, 0)
        while any(start < len(self.entries) for start in first.values()):
            for number, change in enumerate(changes):
                start, now, waiting = first[change.id], time.perf_counter(), len(changes) - number
                end = latest if start == 0 else until
                if now >= end:
                    return
                if start == len(self.entries):
                    continue
                trials, patience = rate * max(until - now, 0) / waiting, (end - now) / waiting
                if start == 0 and job.model.device.type in COMPILING:
                    self._advance(job, change, images, 0, _Tally(), trials, now + patience)
                allowed = time.perf_counter() + patience
                first[change.id] = self._advance(job, change, images, start, tallies[change.id], trials, allowed)

    def _speed_up(self, job: Job, changes: Sequence[Change], images: Images, tallies: Mapping[str, _Tally]) -> float:
        """Return how much faster all images are together, by the change that takes the least; 1 if that takes long."""
        ended = [change for change in changes if tallies[change.id].ended and tallies[change.id].alone]
        if not ended:
            return 1.0

        def seconds_per_image(change: Change) -> float:
            return tallies[change.id].seconds / tallies[change.id].images

        change = min(ended, key=seconds_per_image)
        few, many, limit = tallies[change.id], _Tally(), 2 * seconds_per_image(change)
        if limit > SHORTEST:
            return 1.0
        self._advance(job, change, images, 0, many, math.inf, time.perf_counter() + limit)
        return max(1.0, few.seconds / few.trials * many.trials / many.seconds)

    def _advance(
        self, job: Job, change: Change, images: Images, start: int, tally: _Tally, trials: float, until: float
    ) -> int:
        """Measure some images from `start` on, as many as need about so many trials; return where the next ones start."""
        each = job.trials(change, self.entries) / len(self.entries)
        if not each:
            return len(self.entries)
        options = job.options
        if job.method.sketch is not None:
            options = job.method.sketch(options, max(1.0, TOGETHER * each / max(trials, 1.0)))
        sketched = Job(job.lens, options, job.model, job.changes, job.unsupported)
        each = max(1.0, sketched.trials(change, self.entries) / len(self.entries))
        stop = min(len(self.entries), start + int(max(1, min(trials / each, len(self.entries)))))
        entries = self.entries[start:stop]
        part = Images(images.inputs[start:stop], images.originals[start:stop])
        evaluator = make_evaluator(self.context, sketched, entries, part, self.truth, self.context.batch(job.model))
        shard, before = evaluator.shard(), evaluator.queries
        began = time.perf_counter()
        ended = _drive(evaluator, job.method.measure(shard, change, options), until)
        done, most = evaluator.queries - before, sketched.trials(change, entries)
        tally.trials += done
        tally.seconds += time.perf_counter() - began
        tally.most += most
        tally.images += len(entries)
        tally.turns += 1
        if ended:
            tally.ended += done
            tally.ended_most += most
            tally.ended_images += len(entries)
        return stop


def _drive(evaluator: Evaluator, measuring: Measuring, until: float) -> bool:
    """Run a lens's generator until it ends or the time is over, and return whether it ended."""
    try:
        step = next(measuring)
        while time.perf_counter() < until:
            step = measuring.send(evaluator.reply(step))
    except StopIteration:
        return True
    measuring.close()
    return False


@contextmanager
def probing(setup: RunSetup, indices: list[int], batches: dict[str, int]) -> Iterator[Probe]:
    """Read some of the images and query the models on them."""
    count = max(IMAGES.get(model.device.type, 8) for model in setup.models)
    chosen = indices[:: max(1, len(indices) // count)][:count]
    models = [model for model in setup.models if model.service is None]
    objects, masks = required_truth(setup)
    with ThreadPoolExecutor(worker_count(setup.config.execution.workers), "decode") as pool:
        began = time.perf_counter()
        survey = Survey(setup.dataset, chosen, pool, strict=False, objects=objects, masks=masks)
        samples = survey.table(lambda done: None)
        seconds = (time.perf_counter() - began) / len(chosen)
        manifest = {"execution": {"batch": batches, "shard": count}}
        context = RunContext(Store(setup.config.folder()), setup, samples, manifest, pool, Silent())
        tables = [answer_clean(context, model, lambda done: None) for model in models]
        truth = Truth({}, {})
        for table in tables:
            own = Truth.of(table)
            truth = Truth(truth.labels | own.labels, truth.regions | own.regions)
        unlabelled = {index for (_, index), label in truth.labels.items() if label == NO_LABEL}
        labelled = {index for _, index in truth.labels} - unlabelled
        entries = [entry for entry in readable(samples) if entry.index in labelled]
        yield Probe(context, entries, truth, seconds)
