"""The size of units, and the time left: both from the time that images take on this machine."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from brinell.engine.context import RunContext
from brinell.engine.setup import Job
from brinell.engine.shards import Entry
from brinell.engine.tuning import images_per_second

UNIT_SECONDS = 60.0  # longest unit, if every search needs as many trials as it can


def unit_size(context: RunContext, job: Job, entries: Sequence[Entry]) -> int:
    """Return the number of images of a unit: at most a shard's, and fewer if the lens limits it or images take long.

    It is measured once for a lens and a model, and stored in the manifest: a resumed run must have the same units.
    """
    execution = context.manifest["execution"]
    shard = int(execution["shard"])
    most = min(shard, job.method.images_per_unit or shard)
    if not entries or not job.changes:
        return most
    trials = max(1.0, max(job.trials(change, entries) for change in job.changes) / len(entries))
    if job.method.trials_per_unit is not None:
        return _limited(most, job.method.trials_per_unit / trials)
    if context.setup.config.execution.shard is not None or job.model.service is not None:
        return most  # as requested; the answers of a service are stored one by one
    sizes: dict[str, int] = execution.setdefault("unit", {})
    name = f"{job.lens.name}/{job.model.name}"
    if name not in sizes:
        rate = images_per_second(job.model, context.batch(job.model))
        sizes[name] = _limited(most, UNIT_SECONDS * rate / trials)
        context.store.write_manifest(context.manifest)
    return min(most, sizes[name])


def _limited(most: int, fitting: float) -> int:
    return max(1, min(most, int(fitting)))


class Pace:
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
