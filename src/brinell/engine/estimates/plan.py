"""Estimates what a run costs: forward passes, time and storage, or queries and their price.

How many trials a lens makes at most is known beforehand. How many it needs, and how long they take, is measured on a few
images (see `probe`). Services are never queried for an estimate: theirs is the most that they can be sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import torch

from brinell.config.budget import Budget
from brinell.engine.budget import Work, share_of, wanted_of, work_of
from brinell.engine.clean import kept_entries
from brinell.engine.estimates.probe import Pace, probing
from brinell.engine.manifest import refuse_other_settings
from brinell.engine.missing import share_left
from brinell.engine.setup import Job, RunSetup, jobs_of
from brinell.engine.shards import Entry
from brinell.engine.survey import select_indices
from brinell.engine.threads import torch_alone
from brinell.engine.tuning import measured_rate, measured_speed
from brinell.errors import BrinellError, UnreadableImage
from brinell.models.model import Model
from brinell.run_config import RunConfig
from brinell.runs.integrity import read_table
from brinell.runs.store import Store, digest_of

BYTES_PER_ROW = 42  # of a profile in Parquet, as measured on 300 ImageNet images
BYTES_PER_DETECTION = 19  # as measured on COCO images
BYTES_PER_WINDOW = 2.5  # of maps, as measured on ImageNet images
ROWS_OF_MAPS = 8  # per image and window size, for lenses that store maps
SIZES_READ = 32  # images whose sizes represent all
SHORT = 60.0  # seconds; a probe takes several, too many for a run that can't take longer
FEW_SEARCHES = 4  # that ended in a probe: one image may need many times the queries of another
PROBE_SHARE, SHORTEST_PROBE, LONGEST_PROBE = 0.02, 3.0, 30.0  # of the longest time that a run can take; seconds


@dataclass(frozen=True)
class Cost:
    """The cost of one lens with one model.

    `trials` are the most that it can make; `forward_passes` and `seconds` are as estimated from a probe, or, if `most`, an
    upper bound; if `rough`, the probe saw few searches end. `queries` is the largest number of images to send to a
    service, at `price` each; its speed may be unknown.
    """

    lens: str
    model: str
    operators: int
    images: int
    trials: int
    rows: int
    forward_passes: int
    gradients: int
    images_per_second: float | None
    seconds: float
    most: bool
    queries: int = 0
    price: float | None = None
    currency: str = ""
    detections: int = 0  # most per row
    windows: int = 0  # stored in maps
    cells: int = 0  # of an image's grid, such as levels, of which a budget chooses some; 0: it chooses images
    rough: bool = False

    @property
    def bytes(self) -> int:
        """Estimated size of the rows."""
        return int(self.rows * (BYTES_PER_ROW + BYTES_PER_DETECTION * self.detections) + BYTES_PER_WINDOW * self.windows)

    def scaled(self, share: float) -> Cost:
        """Return the cost of a share of the work."""
        counts = ("trials", "rows", "forward_passes", "gradients", "queries", "windows")
        return replace(self, seconds=self.seconds * share, **{name: round(getattr(self, name) * share) for name in counts})

    def under(self, share: float) -> Cost:
        """Return the cost if a share of the trials is made; clean images are queried in any case."""
        clean = 2 * self.images
        passes = clean + round(share * max(0, self.forward_passes - clean))
        time = passes / self.forward_passes if self.forward_passes else share
        queries = self.images + round(share * (self.queries - self.images)) if self.queries else 0
        counts = {name: round(getattr(self, name) * share) for name in ("trials", "rows", "gradients", "windows")}
        return replace(self, forward_passes=passes, queries=queries, seconds=self.seconds * time, **counts)


@dataclass(frozen=True)
class Plan:
    """A run's estimated cost. All images are counted, before any selection."""

    folder: str
    costs: tuple[Cost, ...]
    reading: float = 0.0  # seconds, to read the images
    paces: tuple[Mapping[str, Pace], ...] = ()  # as measured, by change, for each lens and model
    resumed: bool = False  # only what is left of a run is counted

    @property
    def seconds(self) -> float:
        """Estimated time."""
        return sum((cost.seconds for cost in self.costs), self.reading)

    @property
    def most(self) -> bool:
        """Whether the estimate is an upper bound, at least in part."""
        return any(cost.most for cost in self.costs)

    @property
    def rough(self) -> bool:
        """Whether a part of the estimate rests on few searches."""
        return any(cost.rough for cost in self.costs)

    @property
    def forward_passes(self) -> int:
        """Images that go through a model."""
        return sum(cost.forward_passes for cost in self.costs)

    @property
    def rows(self) -> int:
        """Rows that would be written."""
        return sum(cost.rows for cost in self.costs)

    @property
    def bytes(self) -> int:
        """Estimated size of the rows."""
        return sum(cost.bytes for cost in self.costs)


@dataclass(frozen=True)
class _Work:
    """A job, the number of its images, and the most trials per image of each of its changes; how fast its model is."""

    job: Job
    images: int
    trials: Mapping[str, float]
    batch: int
    rate: float | None

    @property
    def passes(self) -> int:
        """The most forward passes; clean images are queried twice: to select, and to compare."""
        return round(self.images * sum(self.trials.values())) + 2 * self.images

    @property
    def seconds(self) -> float:
        """The longest time that forward passes can take."""
        return self.passes * self.job.method.overhead / self.rate if self.rate else 0.0


def plan(setup: RunSetup, *, known: Plan | None = None) -> Plan:
    """Estimate the cost of a run on this machine. `known` is an estimate of another config, in place of a probe."""
    indices = select_indices(setup.dataset, setup.config.data, setup.config.seed)
    jobs = jobs_of(setup)
    with torch_alone():
        works = _works(setup, jobs, indices)
        if known is not None:
            paces, reading = _known_paces(known, works), known.reading
        else:
            paces, reading = _probe(setup, works, indices)
        costs = tuple(_cost(work, own) for work, own in zip(works, paces, strict=True))
    return Plan(setup.config.folder(), costs, reading, tuple(paces))


def plan_run(setup: RunSetup) -> Plan | None:
    """Estimate what is left of a run before it starts; None if nothing is. Probes only runs that may take a while."""
    store = Store(setup.config.folder())
    refuse_other_settings(store, setup.config, setup.models)
    jobs = jobs_of(setup)
    left = _left(store, setup.config, jobs)
    if left is not None and not any(left):
        return None
    found = plan(setup)
    if left is None:
        return under_budget(found, setup.config.budget)
    costs = tuple(cost.scaled(share) for cost, share in zip(found.costs, left, strict=True))
    return replace(found, costs=costs, resumed=True)


def under_budget(plan: Plan, budget: Budget | None) -> Plan:
    """Return what a plan costs under a budget; with a target width, it may take all queries."""
    if budget is None:
        return plan
    if budget.width is not None:
        return replace(plan, costs=tuple(replace(cost, most=True) for cost in plan.costs))
    models = {cost.model: cost.images for cost in plan.costs}
    share = share_of(budget, Work(sum(cost.trials for cost in plan.costs), sum(models.values())))
    return replace(plan, costs=tuple(cost.under(share) for cost in plan.costs))


def _left(store: Store, config: RunConfig, jobs: list[Job]) -> list[float] | None:
    """Return the share of each job's trials that are still to do; None in a folder that holds nothing yet."""
    if not store.exists("manifest.json") or not store.measured():
        return None
    manifest = store.manifest()
    store.run = digest_of(manifest)
    (samples, _), (clean, _) = (read_table(store, name) for name in ("samples", "clean"))
    if samples is None or clean is None:  # or damaged: the run computes them again
        return None
    kept = kept_entries(samples, clean)
    wanted = wanted_of(config, work_of(jobs, kept), manifest)
    return [share_left(store, job, kept, wanted) for job in jobs]


def _works(setup: RunSetup, jobs: list[Job], indices: list[int]) -> list[_Work]:
    sized = _read_sizes(setup, indices) if any(job.method.by_window for job in jobs) else []
    works = []
    for job in jobs:
        if job.method.check is not None and sized:
            job.method.check(job.options, job.model, torch.tensor([entry.size for entry in sized]))
        entries = sized if job.method.by_window and sized else [Entry(0, "", "")]
        trials = {change.id: job.trials(change, entries) / len(entries) for change in job.changes}
        batch, rate = _speed(job.model, setup.config.execution.batch)
        works.append(_Work(job, len(indices), trials, batch, rate))
    return works


def _speed(model: Model, batch: int | None) -> tuple[int, float | None]:
    """Return a model's batch size and images per second; for a service, the limit of its rate."""
    if model.service is not None:
        return model.service.batch, model.service.rate
    return measured_speed(model) if batch is None else (batch, measured_rate(model, batch))


def _read_sizes(setup: RunSetup, indices: list[int]) -> list[Entry]:
    """Return the sizes of some of the images."""
    found = []
    for index in indices[:: max(1, len(indices) // SIZES_READ)]:
        with suppress(UnreadableImage):
            height, width = setup.dataset[index].image.shape[1:]
            found.append(Entry(index, "", "", (height, width)))
    return found


def _probe(setup: RunSetup, works: list[_Work], indices: list[int]) -> tuple[list[Mapping[str, Pace]], float]:
    """Return the pace of each job's changes, and the seconds that reading all images takes.

    The longer a run may take, the longer it is probed. If the images can't be used, the run will say so.
    """
    longest = [work.seconds if work.job.model.service is None else 0.0 for work in works]
    paces: list[Mapping[str, Pace]] = [{} for _ in works]
    if sum(longest) < SHORT:
        return paces, 0.0
    seconds = min(max(PROBE_SHARE * sum(longest), SHORTEST_PROBE), LONGEST_PROBE)
    with suppress(BrinellError), probing(setup, indices, {work.job.model.name: work.batch for work in works}) as probe:
        for number, work in enumerate(works):
            if work.job.model.service is None and work.rate and probe.entries:
                own = seconds * (0.5 / len(works) + 0.5 * longest[number] / sum(longest))
                paces[number] = probe.paces(work.job, work.rate, own)
        return paces, 2 * probe.seconds * len(indices)
    return paces, 0.0


def _known_paces(known: Plan, works: list[_Work]) -> list[Mapping[str, Pace]]:
    """Return the paces of another estimate's changes by lens and model; a change that it doesn't have gets their mean."""
    found = {(cost.lens, cost.model): own for cost, own in zip(known.costs, known.paces, strict=True)}
    return [found.get((work.job.lens.name, work.job.model.name), {}) for work in works]


def _cost(work: _Work, paces: Mapping[str, Pace]) -> Cost:
    job, images, service = work.job, work.images, work.job.model.service
    trials = round(images * sum(work.trials.values()))
    queries = 0 if service is None else trials + images  # the second time, answers come from the cache
    if queries:
        passes, seconds, most = work.passes, queries / work.rate if work.rate else 0.0, True
    else:
        passes, seconds, most = _estimate(work, paces)
    white = sum(work.trials[change.id] for change in job.changes if change.white_box)
    return Cost(
        lens=job.lens.name,
        model=job.model.name,
        operators=len(job.changes),
        images=images,
        trials=trials,
        rows=_rows(job, images, [round(each) for each in work.trials.values()]),
        forward_passes=passes,
        gradients=round(images * white),
        images_per_second=passes / seconds if seconds else work.rate,
        seconds=seconds,
        most=most,
        rough=job.method.search and 0 < sum(pace.images for pace in paces.values()) < FEW_SEARCHES,
        queries=queries,
        price=None if service is None else service.price,
        currency="" if service is None else service.currency,
        windows=trials if job.method.by_window else 0,
        cells=max(
            [0, *(_cells(job, work.trials[change.id]) for change in job.changes if job.lens.reader.cells(change.id))]
        ),
        detections=0
        if job.method.search or job.method.by_window or job.model.detector is None
        else job.model.detector.decoding.max_detections,
    )


def _cells(job: Job, trials: float) -> int:
    return round(trials / job.method.queries_per_cell)


def _estimate(work: _Work, paces: Mapping[str, Pace]) -> tuple[int, float, bool]:
    """Return forward passes and seconds, and whether they are an upper bound.

    A change that wasn't probed costs as much per trial as the others on average.
    """
    assert work.rate is not None
    shares = [pace.share for pace in paces.values() if pace.share is not None]
    speeds = [pace.seconds for pace in paces.values() if pace.seconds]
    usual = sum(shares) / len(shares) if shares else 1.0
    slow = sum(speeds) / len(speeds) if speeds else work.job.method.overhead / work.rate
    passes, seconds, most = 0.0, 0.0, work.job.method.search and not shares
    for change, trials in work.trials.items():
        pace = paces.get(change, Pace(usual, slow))
        share = 1.0 if pace.share is None else pace.share
        most = most or (pace.share is None and work.job.method.search)
        passes += work.images * trials * share
        seconds += work.images * trials * share * (pace.seconds or slow)
    clean = 2 * work.images
    return round(passes) + clean, seconds + clean / work.rate, most


def _rows(job: Job, images: int, trials: list[int]) -> int:
    if job.method.by_window:
        return images * ROWS_OF_MAPS * len(trials)
    if job.method.search:
        return images * 2 * len(trials)
    return images * sum(count + 1 for count in trials)
