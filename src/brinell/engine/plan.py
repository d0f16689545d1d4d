"""What a run would cost: trials, forward passes, time and storage. Nothing is measured but the model's speed."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass

import torch

from brinell.engine.setup import Job, RunSetup, jobs_of
from brinell.engine.shards import Entry
from brinell.engine.survey import chosen
from brinell.engine.threads import CORES, one_each_core, torch_alone
from brinell.engine.tuning import best_batch, images_per_second
from brinell.errors import UnreadableImage
from brinell.models.model import Model

BYTES_A_ROW = 42  # of a profile in Parquet, as measured on 300 ImageNet images
BYTES_A_DETECTION = 19  # as measured on COCO images
BYTES_A_WINDOW = 2.5  # of maps, as measured on ImageNet images
ROWS_OF_MAPS = 8  # of an image and a size: four kinds of fragility, by correctness and by label
LOOKED_AT = 32  # images whose sizes stand for all
OVERHEAD = 1.1  # operators, distances and rows beside the forward passes, as measured by the benchmarks


@dataclass(frozen=True)
class Cost:
    """One lens with one model. `trials` is how many questions it takes, or how many at most where `searching`.

    `queries` are the images that a service would be sent at most, at `price` each; how fast it answers may be unknown.
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
    detections: int = 0  # that a row holds at most
    windows: int = 0  # whose answers are kept as maps

    @property
    def bytes(self) -> int:
        """Estimated size of the rows."""
        return int(self.rows * (BYTES_A_ROW + BYTES_A_DETECTION * self.detections) + BYTES_A_WINDOW * self.windows)


@dataclass(frozen=True)
class Plan:
    """A run's cost, as far as it can be told without doing it: all images are counted, before any selection."""

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
    """The cost of a run on this machine."""
    indices = chosen(setup.dataset, setup.config.data, setup.config.seed)
    jobs = jobs_of(setup)
    looked = _looked_at(setup, indices) if any(job.method.by_window for job in jobs) else []
    with torch_alone():
        costs = tuple(_cost(job, len(indices), looked, setup.config.execution.batch) for job in jobs)
    return Plan(setup.config.folder(), costs)


def _looked_at(setup: RunSetup, indices: list[int]) -> list[Entry]:
    """Some of the images, for their sizes."""
    found = []
    for index in indices[:: max(1, len(indices) // LOOKED_AT)]:
        with suppress(UnreadableImage):
            height, width = setup.dataset[index].image.shape[1:]
            found.append(Entry(index, "", "", (height, width)))
    return found


def _cost(job: Job, images: int, looked: list[Entry], batch: int | None) -> Cost:
    method = job.method
    if method.check is not None and looked:
        method.check(job.options, job.model, torch.tensor([entry.size for entry in looked]))
    entries = looked if method.by_window and looked else [Entry(0, "", "")]
    each = [round(job.trials(change, entries) / len(entries)) for change in job.changes]
    batch = batch or best_batch(job.model)
    service = job.model.service
    rate = images_per_second(job.model, batch) if service is None else service.rate
    white = images * sum(count for count, operator in zip(each, job.changes, strict=True) if operator.white_box)
    trials = images * sum(each)
    forwards = trials + 2 * images  # the clean images are asked once to select, once to compare
    queries = 0 if service is None else trials + images  # the second time, the clean images' answers are known
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
