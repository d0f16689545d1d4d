"""Batches in parallel: one per core on a CPU, two at a time on an accelerator.

On a CPU, threads that share each operation synchronise after it, hundreds of times per batch. Threads that share only the
list of batches don't, and their data stays in the core's cache. On an accelerator, one batch keeps the device busy while
the host prepares the other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar

import torch
from torch import Tensor

from brinell.boxes import Detections
from brinell.engine.shards import in_order
from brinell.errors import ModelError
from brinell.models.model import Model

A = TypeVar("A")
B = TypeVar("B")

CORES = torch.get_num_threads()
UNDER_WAY = 3  # most batches in flight on an accelerator: a slow one delays only the batch after next


def batches(count: int, size: int) -> list[slice]:
    """Return 0..count as batches of at most `size` and nearly equal sizes; their number is a multiple of the cores."""
    rounds = -(-count // (size * CORES))
    number = min(count, rounds * CORES)
    bounds = [count * index // number for index in range(number + 1)]
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def nearest_repeat(samples: Tensor) -> int:
    """Return the smallest distance between two trials of one sample; their number, where no sample repeats."""
    order = torch.argsort(samples, stable=True)
    repeated = samples[order].diff() == 0
    return int(order.diff()[repeated].min()) if bool(repeated.any()) else len(samples)


def one_each_core(work: Callable[[A], B], items: Iterable[A]) -> Iterator[B]:
    """Yield the results of work on each item, in order, with one thread per core and one torch thread in each."""
    return in_order(core_pool(), work, items, CORES)


def halving(
    work: Callable[[slice], B], count: int, batch: int, each: Callable[..., Iterable[Any]] = map
) -> tuple[list[B], int]:
    """Return the results of work on 0..count in batches, halved when an accelerator's memory runs out; and the last size.

    `each` maps work over a list of batches, in order.
    """

    def attempt(part: slice) -> B | None:
        try:
            return work(part)
        except torch.OutOfMemoryError:
            return None

    parts: list[B] = []
    done = 0
    while done < count:
        todo = [slice(start, min(start + batch, count)) for start in range(done, count, batch)]
        for part, outcome in zip(todo, each(attempt, todo), strict=True):
            if outcome is None:
                break
            parts.append(outcome)
            done = part.stop
        else:
            break
        if batch == 1:
            raise ModelError("out of memory even with one image at a time; use --device cpu")
        batch //= 2
        torch.cuda.empty_cache()
    return parts, batch


def two_in_flight(work: Callable[[A], B], items: Iterable[A], device: torch.device) -> Iterator[B]:
    """Yield the results of work on each item, in order, in two threads, each with its own stream on the accelerator."""

    def in_a_stream(item: A) -> B:
        stream = _own_stream(device)
        stream.wait_stream(torch.cuda.default_stream(device))  # earlier work is visible
        with torch.cuda.stream(stream):
            result = work(item)
        stream.synchronize()  # the result may be used in any stream
        return result

    return in_order(_flights(), in_a_stream, items, UNDER_WAY - 1)


_forward = threading.Lock()
_passed: dict[torch.device, torch.cuda.Event] = {}


@contextmanager
def in_turn(device: torch.device) -> Iterator[None]:
    """Run forward passes on an accelerator one after the other, without a gap.

    Two at once would end at the same time, and the accelerator would idle while both next batches are prepared. In turns,
    one is prepared while the other is computed.
    """
    if device.type != "cuda":
        yield
        return
    with _forward:  # while kernels are launched; the next pass waits for the event below
        stream = torch.cuda.current_stream(device)
        if device in _passed:
            stream.wait_event(_passed[device])
        try:
            yield
        finally:
            _passed[device] = stream.record_event()


_local = threading.local()


def _own_stream(device: torch.device) -> torch.cuda.Stream:
    streams: dict[torch.device, torch.cuda.Stream] = _local.__dict__.setdefault("streams", {})
    if device not in streams:
        streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return streams[device]


@cache
def _flights() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(2, "flight")


def answers(model: Model, inputs: Tensor, batch: int) -> Tensor:
    """Return a model's probabilities for host inputs: one batch at a time on an accelerator, one per core on a CPU."""
    return answers_and_detections(model, inputs, batch)[0]


def answers_and_detections(model: Model, inputs: Tensor, batch: int) -> tuple[Tensor, list[Detections]]:
    """Return the same, and a detector's detections, batch by batch."""
    if model.device.type != "cpu":
        parts, _ = halving(lambda part: model.answer(inputs[part].to(model.device)), len(inputs), batch)
    else:
        parts = list(one_each_core(lambda part: model.answer(inputs[part]), batches(len(inputs), batch)))
    return torch.cat([scores for scores, _ in parts]), [found for _, found in parts if found is not None]


def masks_of(model: Model, inputs: Tensor, batch: int) -> Tensor:
    """Return a segmenter's masks for host inputs, on the host."""
    if model.device.type != "cpu":
        parts, _ = halving(lambda part: model.segment(inputs[part].to(model.device)).cpu(), len(inputs), batch)
    else:
        parts = list(one_each_core(lambda part: model.segment(inputs[part]), batches(len(inputs), batch)))
    return torch.cat(parts)


@contextmanager
def torch_alone() -> Iterator[None]:
    """Limit torch to one thread per operation, within this context."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def core_pool() -> ThreadPoolExecutor:
    """Return a pool with one thread per core and one torch thread in each."""
    pool = ThreadPoolExecutor(CORES, "core")
    meeting = threading.Barrier(CORES)

    def compute_alone(_: int) -> None:
        torch.set_num_threads(1)
        torch.get_num_threads()  # torch reads the global setting once per thread: here, while it is 1
        meeting.wait()  # so that every thread makes exactly one of these calls

    with torch_alone():  # restores the global setting
        list(pool.map(compute_alone, range(CORES)))
    return pool
