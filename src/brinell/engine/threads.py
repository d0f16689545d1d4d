"""Work on a CPU: whole batches side by side, one a core, each computed by one thread.

Threads that share each operation wait for each other after it, hundreds of times a batch. Threads that share nothing but
the list of batches don't, and what one of them works on stays in its core's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from threading import Barrier
from typing import TypeVar

import torch
from torch import Tensor

from brinell.errors import ModelError
from brinell.models import Model

A = TypeVar("A")
B = TypeVar("B")

CORES = torch.get_num_threads()


def batches(count: int, size: int) -> list[slice]:
    """0..count in batches of at most `size`, as many as there are cores or a multiple, and of nearly one size."""
    rounds = -(-count // (size * CORES))
    number = min(count, rounds * CORES)
    bounds = [count * place // number for place in range(number + 1)]
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def one_each_core(work: Callable[[A], B], items: Iterable[A]) -> Iterator[B]:
    """`work` on each item, in order, in as many threads as there are cores; in each of them torch computes alone."""
    return _pool().map(work, items)


def halving(work: Callable[[slice], B], count: int, batch: int) -> tuple[list[B], int]:
    """`work` on 0..count one batch after the other, halved whenever an accelerator's memory runs out; and the last size."""
    parts: list[B] = []
    done = 0
    while done < count:
        part = slice(done, min(done + batch, count))
        try:
            parts.append(work(part))
        except torch.OutOfMemoryError:
            if batch == 1:
                raise ModelError("out of memory even with one image at a time; use --device cpu") from None
            batch //= 2
            torch.cuda.empty_cache()
        else:
            done = part.stop
    return parts, batch


def answers(model: Model, canvases: Tensor, batch: int) -> Tensor:
    """A model's probabilities for host canvases: batch after batch on an accelerator, one a core on a CPU."""
    if model.device.type != "cpu":
        parts, _ = halving(lambda part: model.predict(canvases[part].to(model.device)), len(canvases), batch)
        return torch.cat(parts)
    return torch.cat(list(one_each_core(lambda part: model.predict(canvases[part]), batches(len(canvases), batch))))


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
    meeting = Barrier(CORES)

    def compute_alone(_: int) -> None:
        torch.set_num_threads(1)
        torch.get_num_threads()  # torch reads its common setting once in each thread: here, while it is 1
        meeting.wait()  # no thread takes two of these calls

    with torch_alone():  # puts the common setting back afterwards
        list(pool.map(compute_alone, range(CORES)))
    return pool
