"""Trials of a sequential change on a CPU: each level of a sample is made from the one below.

Samples are dealt into chains, whose levels are links. The links of a chain follow each other; chains wait for no other
chain, so that all cores are busy until the last level, and few images at a time stay in a core's cache.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import as_completed, wait
from typing import TypeVar

import torch
from torch import Tensor

from brinell.engine.threads import CORES, batches, core_pool

A = TypeVar("A")
B = TypeVar("B")
EACH = 2  # least chains for each core: one that is slower than the others gets fewer links


def make_chains(samples: Tensor, most: int) -> list[list[Tensor]]:
    """Return the chains of trials of samples (T,), of at most so many samples each, as indices of the trials of each link.

    Trials keep their order; a link ends where the samples don't ascend, so that none is in it twice.
    """
    present = torch.unique(samples)
    made = []
    for part in batches(len(present), min(most, -(-len(present) // (EACH * CORES)))):
        own = present[part]
        indices = ((samples >= own[0]) & (samples <= own[-1])).nonzero()[:, 0]
        ends = (samples[indices].diff() <= 0).nonzero()[:, 0] + 1
        made.append(list(indices.tensor_split(ends)))
    return made


def run_chains(work: Callable[[A], B], chains: Sequence[Sequence[A]]) -> list[list[B]]:
    """Run `work` on every link and return the results.

    The links of a chain run in order; the chain that is furthest behind goes next.
    """
    queue = _Queue([len(links) for links in chains])
    done: list[list[B]] = [[] for _ in chains]

    def follow() -> None:
        with queue:
            while (taken := queue.take()) is not None:
                link, number = taken
                done[number].append(work(chains[number][link]))
                queue.finish(link, number)

    cores = [core_pool().submit(follow) for _ in range(CORES)]
    try:
        with queue:
            for core in as_completed(cores):
                core.result()
    finally:
        wait(cores)
    return done


class _Queue:
    """The links that can be worked on now, of chains of some lengths. After an error or an interruption there are none."""

    def __init__(self, lengths: Sequence[int]) -> None:
        self._lengths, self._missing, self._stopped = lengths, sum(lengths), False
        self._ready = [(0, number) for number, length in enumerate(lengths) if length]
        self._change = threading.Condition()

    def take(self) -> tuple[int, int] | None:
        """Wait for a link, and return it and its chain; None if there is nothing left to do."""
        with self._change:
            self._change.wait_for(lambda: self._ready or self._stopped or not self._missing)
            return None if self._stopped or not self._missing else heapq.heappop(self._ready)

    def finish(self, link: int, number: int) -> None:
        """Make the next link of a chain ready."""
        with self._change:
            self._missing -= 1
            if link + 1 < self._lengths[number]:
                heapq.heappush(self._ready, (link + 1, number))
            self._change.notify_all()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *others: object) -> None:
        with self._change:
            self._stopped |= kind is not None
            self._change.notify_all()


def in_order_of_trials(chains: Sequence[Sequence[Tensor]]) -> Tensor:
    """Return where each trial's result is, if those of all links are joined, chain after chain."""
    return torch.cat([link for links in chains for link in links]).argsort()
