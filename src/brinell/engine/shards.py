"""Decodes images of a dataset to model inputs, in threads, one shard ahead of the model."""

from __future__ import annotations

import ctypes
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from brinell.errors import DataError
from brinell.models.preprocess import Preprocess
from brinell.types import Dataset, id_number, image_id

A = TypeVar("A")
B = TypeVar("B")

CHUNK = 8  # most images per decoding task: with one image each, threads mostly wait for the queue
READERS = 6  # most threads: with more, they wait for Python's lock, and fewer images are read
TASKS = 64  # decoding tasks, where there are images enough: each thread gets several


@dataclass(frozen=True)
class Entry:
    """A readable image of a dataset: its index, id, name, size (height, width) and its object's box (xyxy)."""

    index: int
    image: str
    name: str
    size: tuple[int, int] = (0, 0)
    box: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Images:
    """A shard's inputs, uint8 (S, C, H, W), and the originals (each C, H, W) if a lens needs them."""

    inputs: Tensor
    originals: list[Tensor]


def worker_count(given: int | None, most: int = READERS) -> int:
    """Return the number of decoding threads."""
    return given or min(most, os.cpu_count() or 1)


def in_order(pool: ThreadPoolExecutor, work: Callable[[A], B], items: Iterable[A], ahead: int) -> Iterator[B]:
    """Yield results in the order of the items, with at most `ahead` tasks in flight, so that memory stays constant."""
    waiting: deque[Future[B]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:  # a caller that stops early leaves no task running
        for future in waiting:
            future.cancel()
        wait(waiting)


def chunks(count: int) -> list[slice]:
    """Return 0..count in parts, one for each decoding task."""
    size = max(1, min(CHUNK, count // TASKS))
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def load_inputs(dataset: Dataset, entries: Sequence[Entry], preprocess: Preprocess, pool: ThreadPoolExecutor) -> Tensor:
    """Return the inputs of entries, uint8 (S, C, H, W). Raise if an image changed since it was first read."""
    return load_images(dataset, entries, preprocess, pool).inputs


def load_images(
    dataset: Dataset,
    entries: Sequence[Entry],
    preprocess: Preprocess,
    pool: ThreadPoolExecutor,
    *,
    with_originals: bool = False,
    ready: Mapping[int, Tensor] = {},
) -> Images:
    """Return the inputs of entries and, if requested, the originals. Raise if an image changed since it was first read.

    Inputs that are `ready`, by their dataset index, are reused.
    """
    originals: dict[int, Tensor] = {}
    inputs = torch.empty(len(entries), preprocess.channels, preprocess.height, preprocess.width, dtype=torch.uint8)

    def load(part: slice) -> None:
        for position, entry in enumerate(entries[part], part.start):
            if entry.index in ready:
                inputs[position] = ready[entry.index]
                continue
            image = dataset[entry.index].image if entry.index < len(dataset) else None
            if image is None or image_id(image) != entry.image:
                raise DataError(
                    f"{entry.name} has changed or moved since this run started; restore it, or choose another --out"
                )
            inputs[position] = preprocess.model_input(image)
            if with_originals:
                originals[position] = preprocess.convert_channels(image)

    for _ in in_order(pool, load, chunks(len(entries)), 64):
        pass
    return Images(inputs, [originals[position] for position in range(len(originals))])


def id_numbers(entries: Sequence[Entry]) -> Tensor:
    """Return the ids of entries as numbers, which key their random draws."""
    return torch.tensor([id_number(entry.image) for entry in entries], dtype=torch.int64)


def one_ahead(make: Callable[[A], B], items: Iterable[A]) -> Iterator[B]:
    """Yield what is made of each item; the next one is made while the last is used."""
    with ThreadPoolExecutor(1, "shards") as pool:
        yield from in_order(pool, make, items, 1)


def give_back_freed_memory() -> None:
    """Make glibc return freed memory to the system.

    Decoding threads fragment the heap: without this, a run needs a third more memory after a thousand images than after
    a hundred. Once per unit, the cost is not measurable; after every batch it would be.
    """
    if sys.platform.startswith("linux"):
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)
