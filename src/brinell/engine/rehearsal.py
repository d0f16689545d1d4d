"""Applies each change of a run once while its images are read: an accelerator's kernels are compiled and loaded then."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread

import torch

from brinell.engine.evaluator import Evaluator
from brinell.engine.setup import Job
from brinell.lenses.method import Trials

LOG = logging.getLogger(__name__)
AMOUNT = 1.0  # a level of an operator, and a severity of a property
IMAGES = 64  # where no batch size is known


@contextmanager
def rehearsing(jobs: Sequence[Job], batch: int | None) -> Iterator[None]:
    """Rehearse jobs on accelerators in a thread until the context ends, and not beyond: what follows may be timed."""
    ended = Event()
    thread = Thread(target=_rehearse_all, args=(jobs, batch, ended), name="rehearsal")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _rehearse_all(jobs: Sequence[Job], batch: int | None, ended: Event) -> None:
    for job in jobs:
        if job.model.device.type == "cuda" and job.model.service is None:
            rehearse(job, batch, ended)


def rehearse(job: Job, batch: int | None, ended: Event) -> int:
    """Query grey images under each change of model inputs, until it has `ended`; return how many changes were queried.

    What fails here is reported by the run.
    """
    model, pre, done = job.model, job.model.preprocess, 0
    count = batch or (IMAGES if model.speed is None else model.speed.batch)
    for change in [change for change in job.changes if change.acts_on == "input"]:
        if ended.is_set():
            break
        try:
            inputs = torch.full((count, pre.channels, pre.height, pre.width), 128, dtype=torch.uint8)
            samples, labels = torch.arange(count), torch.zeros(count, dtype=torch.int64)
            evaluator = Evaluator.of(model, inputs, samples, labels, criterion=job.criterion(), seed=0, batch=count)
            parameters = torch.tensor([change.parameters_at(AMOUNT, pre.height, pre.width)], dtype=torch.float64)
            evaluator.query(Trials(samples, change, parameters.expand(count, -1), may_fail=True))
            done += 1
        except Exception as error:
            LOG.debug("Rehearsing %s failed: %s", change.id, error)
    return done
