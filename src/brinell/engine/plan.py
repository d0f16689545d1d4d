"""Estimates what a run would cost: trials, forward passes, time and storage. Only the model's speed is measured."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass

import torch

from brinell.engine.setup import Job, RunSetup, jobs_of
from brinell.engine.shards import Entry
from brinell.engine.survey import select_indices
from brinell.engine.threads import CORES, one_each_core, torch_alone
from brinell.engine.tuning import best_batch, images_per_second
from brinell.errors import UnreadableImage
from brinell.models.model import Model

BYTES_PER_ROW = 42  # of a profile in Parquet, as measured on 300 ImageNet images
BYTES_PER_DETECTION = 19  # as measured on COCO images
BYTES_PER_WINDOW = 2.5  # of maps, as measured on ImageNet images
ROWS_OF_MAPS = 8  # per image and window size, for lenses that store maps
SIZES_READ = 32  # images whose sizes represent all
OVERHEAD = 1.1  # operators, distances and rows in addition to forward passes, as measured by the benchmarks


@dataclass(frozen=True)
class Cost:
    """The cost of one lens with one model. `trials` is exact, or an upper bound if the lens is `searching`.

    `queries` is the largest number of images to send to a service, at `price` each; its speed may be unknown.
    """

    lens: str
    model: str
    operators: int
    images: int
    trials: int
    rows: int
    searching: bool
    forward_passes: int
    gradients: int
    images_per_second: float | None
    seconds: float
    queries: int = 0
    price: float | None = None
    detections: int = 0  # most per row
    windows: int = 0  # stored in maps

    @property
    def bytes(self) -> int:
        """Estimated size of the rows."""
        return int(self.rows * (BYTES_PER_ROW + BYTES_PER_DETECTION * self.detections) + BYTES_PER_WINDOW * self.windows)


@dataclass(frozen=True)
class Plan:
    """A run's estimated cost. All images are counted, before any selection."""

    folder: str
    costs: tuple[Cost, ...]

    @property
    def seconds(self) -> float:
        """Estimated time."""
        return sum(cost.seconds for cost in self.costs)

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


def plan(setup: RunSetup) -> Plan:
    """Estimate the cost of a run on this machine."""
    indices = select_indices(setup.dataset, setup.config.data, setup.config.seed)
    jobs = jobs_of(setup)
    sized = _read_sizes(setup, indices) if any(job.method.by_window for job in jobs) else []
    with torch_alone():
        costs = tuple(_cost(job, len(indices), sized, setup.config.execution.batch) for job in jobs)
    return Plan(setup.config.folder(), costs)


def _read_sizes(setup: RunSetup, indices: list[int]) -> list[Entry]:
    """Return the sizes of some of the images."""
    found = []
    for index in indices[:: max(1, len(indices) // SIZES_READ)]:
        with suppress(UnreadableImage):
            height, width = setup.dataset[index].image.shape[1:]
            found.append(Entry(index, "", "", (height, width)))
    return found


def _cost(job: Job, images: int, sized: list[Entry], batch: int | None) -> Cost:
    method = job.method
    if method.check is not None and sized:
        method.check(job.options, job.model, torch.tensor([entry.size for entry in sized]))
    entries = sized if method.by_window and sized else [Entry(0, "", "")]
    each = [round(job.trials(change, entries) / len(entries)) for change in job.changes]
    batch = batch or best_batch(job.model)
    service = job.model.service
    rate = images_per_second(job.model, batch) if service is None else service.rate
    white = images * sum(count for count, operator in zip(each, job.changes, strict=True) if operator.white_box)
    trials = images * sum(each)
    forwards = trials + 2 * images  # clean images are queried twice: to select, and to compare
    queries = 0 if service is None else trials + images  # the second time, answers come from the cache
    seconds = (queries or forwards * OVERHEAD) / rate if rate else 0.0
    seconds += white / _gradients_per_second(job.model, min(batch, 8)) if white else 0
    searching = method.search
    return Cost(
        lens=job.lens.name,
        model=job.model.name,
        operators=len(job.changes),
        images=images,
        trials=trials,
        rows=_rows(job, images, each),
        searching=searching,
        forward_passes=forwards,
        gradients=white,
        images_per_second=rate,
        seconds=seconds,
        queries=queries,
        price=None if service is None else service.price,
        windows=trials if method.by_window else 0,
        detections=0
        if searching or method.by_window or job.model.detector is None
        else job.model.detector.decoding.max_detections,
    )


def _rows(job: Job, images: int, trials: list[int]) -> int:
    if job.method.by_window:
        return images * ROWS_OF_MAPS * len(trials)
    if job.method.search:
        return images * 2 * len(trials)
    return images * sum(count + 1 for count in trials)


def _gradients_per_second(model: Model, batch: int) -> float:
    pre = model.preprocess
    images = torch.full((batch, pre.channels, pre.height, pre.width), 128, dtype=torch.uint8, device=model.device)
    labels = torch.zeros(batch, dtype=torch.int64, device=model.device)
    copies = CORES if model.device.type == "cpu" else 1
    start = time.perf_counter()
    list(one_each_core(lambda _: float(model.gradient(images, labels).abs().max()), range(copies)))
    return copies * batch / (time.perf_counter() - start)
