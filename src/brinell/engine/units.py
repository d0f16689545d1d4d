"""The size of a job's units, and its progress: both from the time that images take on this machine."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from brinell.engine.context import RunContext
from brinell.engine.progress import Reporter
from brinell.engine.setup import Job
from brinell.engine.shards import Entry
from brinell.engine.tuning import images_per_second, measured_speed
from brinell.runs.schema import Unit

UNIT_SECONDS = 60.0  # longest unit, if every search needs as many trials as it can


def unit_size(execution: Mapping[str, Any], job: Job, entries: Sequence[Entry]) -> int:
    """Return the number of images of a unit, as a manifest's `execution` says: a shard's, or fewer."""
    shard = int(execution["shard"])
    most = min(shard, job.method.images_per_unit or shard)
    if job.method.trials_per_unit is not None and entries:
        return _limited(most, job.method.trials_per_unit / _most_trials(job, entries))
    return min(most, int(execution.get("unit", {}).get(_name(job), most)))


def fix_unit_size(context: RunContext, job: Job, entries: Sequence[Entry]) -> None:
    """Measure how many images fit into a unit, and store it in the manifest: a resumed run must have the same units.

    Units are as large as requested where `shard` is given; the answers of a service are stored one by one anyway.
    """
    config, execution = context.setup.config.execution, context.manifest["execution"]
    given = config.shard is not None or job.model.service is not None or job.method.trials_per_unit is not None
    if given or not entries or _name(job) in execution.get("unit", {}):
        return
    batch = context.batch(job.model)
    rate = measured_speed(job.model)[1] if config.batch is None else images_per_second(job.model, batch)
    size = _limited(int(execution["shard"]), UNIT_SECONDS * rate / _most_trials(job, entries))
    execution.setdefault("unit", {})[_name(job)] = size
    context.store.write_manifest(context.manifest)


def record_units(context: RunContext, job: Job, count: int) -> None:
    """Store the number of a job's units in the manifest, so that whoever watches the run knows how many are left."""
    recorded = context.manifest.setdefault("units", {})
    if recorded.get(_name(job)) != count:
        recorded[_name(job)] = count
        context.store.write_manifest(context.manifest)


def _name(job: Job) -> str:
    return f"{job.lens.name}/{job.model.name}"


def _most_trials(job: Job, entries: Sequence[Entry]) -> float:
    """Return the most trials that an image can take, of the change that takes the most."""
    return max([1.0, *(job.trials(change, entries) / len(entries) for change in job.changes)])


def _limited(most: int, fitting: float) -> int:
    return max(1, min(most, int(fitting)))


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
        self._countdown = Countdown(each)
        self._advance = reporter.stage(what, sum(each.values()), "searches", self._countdown.seconds_left)

    def queried(self, count: int) -> None:
        """Report queries."""
        if not self._searches:
            self._advance(count)

    def finish(self, unit: Unit, queries: int) -> None:
        """Report a unit whose rows are written, after a number of queries."""
        if not self._searches:
            self._advance(self._trials[unit] - queries)  # those that were not needed
            return
        self._countdown.finish(unit.operator, self._images[unit])
        self._advance(self._images[unit])


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
