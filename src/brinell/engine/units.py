"""The size of a job's units, and its progress: both from the time that images take on this machine."""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from brinell.engine.context import RunContext
from brinell.engine.progress import Reporter
from brinell.engine.setup import Job, RunSetup
from brinell.engine.shards import Entry
from brinell.engine.tuning import measured_rate, measured_speed
from brinell.engine.workers.processes import worker_number
from brinell.errors import RunError
from brinell.runs.schema import Unit

UNITS_PER_PART = 4  # fewest shards of a part or worker, so that they take about the same time
UNIT_SECONDS = 60.0  # longest unit, if every search needs as many trials as it can
# On an accelerator, the last steps of a search over whole images have few of them, and their batches are mostly filled up:
# the more images search together, the smaller this share. Searches mostly end long before all trials are used, and a
# journal keeps what a long unit has found.
WIDE = 1024  # images of such a search's unit, if there are as many
HELD = 1 << 31  # about as many bytes as their originals may have, and the same as floats on the accelerator


def unit_size(execution: Mapping[str, Any], job: Job, entries: Sequence[Entry]) -> int:
    """Return the number of images of a unit, as a manifest's `execution` says: a shard's, or fewer."""
    shard = int(execution["shard"])
    if _name(job) in execution.get("wide", ()):
        return min(shard, int(execution["unit"][_name(job)]))
    most = min(shard, job.method.images_per_unit or shard)
    if job.method.trials_per_unit is not None and entries:
        return _limited(most, job.method.trials_per_unit / _most_trials(job, entries))
    return min(most, int(execution.get("unit", {}).get(_name(job), most)))


def measured_sizes(
    setup: RunSetup, jobs: Sequence[Job], entries: Sequence[Entry], execution: Mapping[str, Any]
) -> dict[str, int]:
    """Measure how many images fit into a unit of each job. They are stored in the manifest: all who measure a run, at once
    or later, must have the same units.

    Units are as large as requested where `shard` is given; the answers of a service are stored one by one anyway. Every
    part, and every worker of it, has several units of each job.
    """
    config, part = setup.config.execution, setup.config.execution.part_of_run()
    shares = (1 if part is None else part.count) * worker_number(config)
    sizes = {}
    for job in jobs:
        given = config.shard is not None or job.model.service is not None or job.method.trials_per_unit is not None
        if given or not entries:
            continue
        batch = int(execution["batch"][job.model.name])
        rate = measured_speed(job.model)[1] if config.batch is None else measured_rate(job.model, batch)
        fitting = UNIT_SECONDS * rate / _most_trials(job, entries)
        size = _limited(int(execution["shard"]), _widest(job, entries) if _is_wide(job) else fitting)
        if shares > 1:
            size = _limited(size, len(entries) / (shares * UNITS_PER_PART))
        sizes[_name(job)] = _even(size, len(entries))
    return sizes


def wide_jobs(jobs: Sequence[Job], sizes: Mapping[str, int]) -> list[str]:
    """Return the jobs whose measured sizes hold whatever their lens says: searches over whole images on an accelerator."""
    return [_name(job) for job in jobs if _is_wide(job) and _name(job) in sizes]


def _is_wide(job: Job) -> bool:
    return job.method.search and job.method.with_originals and job.model.device.type == "cuda"


def _widest(job: Job, entries: Sequence[Entry]) -> float:
    """Return how many images a unit of such a search may have."""
    pre = job.model.preprocess
    original = pre.channels * sum(height * width for height, width in (entry.size for entry in entries)) / len(entries)
    whole = pre.channels * 2 * pre.height * pre.width * 4  # as floats, with what a crop leaves out
    return min(WIDE, HELD / max(1.0, original, whole))


def fix_unit_size(context: RunContext, job: Job, entries: Sequence[Entry]) -> None:
    """Store the size of a job's units in a manifest that doesn't have it: one of an earlier version."""
    execution = context.manifest["execution"]
    if _name(job) in execution.get("unit", {}):
        return
    sizes = measured_sizes(context.setup, [job], entries, execution)
    if sizes:
        if context.part is not None:
            raise RunError(
                f"the run in {context.store.url} was begun by an earlier version; resume it without --part, or choose "
                "another folder with --out"
            )
        execution.setdefault("unit", {}).update(sizes)
        context.save("execution")


def count_units(context: RunContext, jobs: Sequence[Job], entries: Sequence[Entry]) -> None:
    """Store the number of units of all jobs at once, as parts do: what they all write must be the same."""
    execution = context.manifest["execution"]
    shards = {_name(job): math.ceil(len(entries) / unit_size(execution, job, entries)) for job in jobs}
    counts = {_name(job): shards[_name(job)] * len(job.changes) for job in jobs}
    context.manifest["units"] = {**context.manifest.get("units", {}), **counts}
    context.manifest["shards"] = shards
    context.save("units", "shards")


def record_units(context: RunContext, job: Job, count: int) -> None:
    """Store the number of a job's units in the manifest, so that whoever watches the run knows how many are left."""
    recorded = context.manifest.setdefault("units", {})
    if recorded.get(_name(job)) != count:
        recorded[_name(job)] = count
        context.save("units")


def _name(job: Job) -> str:
    return f"{job.lens.name}/{job.model.name}"


def _most_trials(job: Job, entries: Sequence[Entry]) -> float:
    """Return the most trials that an image can take, of the change that takes the most."""
    return max([1.0, *(job.trials(change, entries) / len(entries) for change in job.changes)])


def _limited(most: int, fitting: float) -> int:
    return max(1, min(most, int(fitting)))


def _even(most: int, count: int) -> int:
    """Return the size of parts of nearly equal sizes: a small last one keeps an accelerator less busy."""
    return most if count <= most else math.ceil(count / math.ceil(count / most))


class JobProgress:
    """Reports the progress of a job: its trials, or where only the end shows how many a search needs, its searches."""

    def __init__(self, reporter: Reporter, job: Job, trials: Mapping[Unit, int], images: Mapping[Unit, int]) -> None:
        self._trials, self._images = trials, images
        what, self._searches = f"{job.lens.name}: {job.model.name}", job.method.search
        if not self._searches:
            self._advance = reporter.stage(what, sum(trials.values()), job.unit)
            return
        each: Counter[str] = Counter()
        for unit, count in self._images.items():
            each[unit.operator] += count
        self._countdown, self._ended = Countdown(each), 0
        self._advance = reporter.stage(what, sum(each.values()), "searches", self._countdown.seconds_left)

    def queried(self, count: int) -> None:
        """Report queries."""
        if not self._searches:
            self._advance(count)

    def begin(self, unit: Unit) -> None:
        """Note which unit is measured now."""
        self._unit = unit

    def ended(self, count: int) -> None:
        """Report how many images of the current unit need nothing more."""
        if self._searches and count > self._ended:
            self._countdown.finish(self._unit.operator, count - self._ended)
            self._advance(count - self._ended)
            self._ended = count

    def finish(self, unit: Unit, queries: int) -> None:
        """Report a unit whose rows are written, after a number of queries."""
        if not self._searches:
            self._advance(self._trials[unit] - queries)  # those that were not needed
            return
        self._countdown.finish(unit.operator, self._images[unit] - self._ended)
        self._advance(self._images[unit] - self._ended)
        self._ended = 0


class Countdown:
    """How long finished images took under each change, and how long the others will take.

    How many trials a search needs is known only when it is done, so the time left is estimated from finished images.
    """

    def __init__(self, images: Mapping[str, int]) -> None:
        self._left = Counter(images)
        self._done: Counter[str] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._last = time.monotonic()

    def finish(self, change: str, images: int) -> None:
        """Note that images are finished under a change, in the time since the last ones were."""
        now = time.monotonic()
        self._left[change] -= images
        self._done[change] += images
        self._seconds[change] += now - self._last
        self._last = now

    def seconds_left(self) -> float | None:
        """Return the estimated time left; None before anything is finished.

        A change without finished images counts as the mean of the others.
        """
        done = sum(self._done.values())
        if not done:
            return None
        mean = sum(self._seconds.values()) / done
        each = {change: self._seconds[change] / count for change, count in self._done.items()}
        left = sum(count * each.get(change, mean) for change, count in self._left.items())
        return max(0.0, left - (time.monotonic() - self._last))
