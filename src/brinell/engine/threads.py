"""Batches side by side: one a core on a CPU, two at a time on an accelerator.

On a CPU, threads that share each operation wait for each other after it, hundreds of times a batch. Threads that share
nothing but the list of batches don't, and what one of them works on stays in its core's cache. On an accelerator, while
one batch is told what to do next, the other keeps it busy.
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

from brinell.engine.shards import in_order
from brinell.errors import ModelError
from brinell.models.model import Model

A = TypeVar("A")
B = TypeVar("B")

CORES = torch.get_num_threads()
# batches that are begun before the first of them is done, at most; a slow one holds up those after next and no more
UNDER_WAY = {"cpu": CORES + 1, "cuda": 3}


def batches(count: int, size: int) -> list[slice]:
    """0..count in batches of at most `size`, as many as there are cores or a multiple, and of nearly one size."""
    rounds = -(-count // (size * CORES))
    number = min(count, rounds * CORES)
    bounds = [count * place // number for place in range(number + 1)]
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def one_each_core(work: Callable[[A], B], items: Iterable[A]) -> Iterator[B]:
    """`work` on each item, in order, in as many threads as there are cores; in each of them torch computes alone."""
    return in_order(_pool(), work, items, UNDER_WAY["cpu"] - 1)


def halving(
    work: Callable[[slice], B], count: int, batch: int, each: Callable[..., Iterable[Any]] = map
) -> tuple[list[B], int]:
    """`work` on 0..count in batches, halved whenever an accelerator's memory runs out; and the last size.

    `each` is how work is done on a list of batches, in their order.
    """

    def tried(part: slice) -> B | None:
        try:
            return work(part)
        except torch.OutOfMemoryError:
            return None

    parts: list[B] = []
    done = 0
    while done < count:
        todo = [slice(start, min(start + batch, count)) for start in range(done, count, batch)]
        for part, outcome in zip(todo, each(tried, todo), strict=True):
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
    """`work` on each item, in order, in two threads, each with a stream of its own on the accelerator."""

    def in_a_stream(item: A) -> B:
        stream = _own_stream(device)
        stream.wait_stream(torch.cuda.default_stream(device))  # what was done before is seen
        with torch.cuda.stream(stream):
            result = work(item)
        stream.synchronize()  # and what comes back may be used anywhere
        return result

    return in_order(_flights(), in_a_stream, items, UNDER_WAY["cuda"] - 1)


_forward = threading.Lock()
_passed: dict[torch.device, torch.cuda.Event] = {}


@contextmanager
def in_turn(device: torch.device) -> Iterator[None]:
    """Forward passes of an accelerator one after the other, without a gap between them.

    Two at once would end at the same time, and then both batches would be prepared while the accelerator has nothing to
    do. In turns one is prepared while the other is computed.
    """
    if device.type != "cuda":
        yield
        return
    with _forward:  # while it is told what to do; the event below is what the next one waits for
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
    """A model's probabilities for host inputs: batch after batch on an accelerator, one a core on a CPU."""
    if model.device.type != "cpu":
        parts, _ = halving(lambda part: model.predict(inputs[part].to(model.device)), len(inputs), batch)
        return torch.cat(parts)
    return torch.cat(list(one_each_core(lambda part: model.predict(inputs[part]), batches(len(inputs), batch))))


@contextmanager
def torch_alone() -> Iterator[None]:
    """Keep torch from using threads of its own from this thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@cache
def _pool() -> ThreadPoolExecutor:
    pool = ThreadPoolExecutor(CORES, "core")
    meeting = threading.Barrier(CORES)

    def compute_alone(_: int) -> None:
        torch.set_num_threads(1)
        torch.get_num_threads()  # torch reads its common setting once in each thread: here, while it is 1
        meeting.wait()  # no thread takes two of these calls

    with torch_alone():  # puts the common setting back afterwards
        list(pool.map(compute_alone, range(CORES)))
    return pool
