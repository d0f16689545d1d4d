"""Images of a dataset as inputs, decoded in threads, one shard ahead of the model."""

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

ERRAND = 8  # images that a thread decodes before it looks for more: handing them out one by one keeps others waiting


@dataclass(frozen=True)
class Entry:
    """A readable image of a dataset: its place, its id and its name, its height and width, and its object's box (xyxy)."""

    index: int
    image: str
    name: str
    size: tuple[int, int] = (0, 0)
    box: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Images:
    """A shard's inputs, uint8 (S, C, H, W), and their originals (each C, H, W) where a lens looks at those."""

    inputs: Tensor
    originals: list[Tensor]


def worker_count(asked: int | None) -> int:
    """Threads for decoding."""
    return asked or min(16, os.cpu_count() or 1)


def in_order(pool: ThreadPoolExecutor, work: Callable[[A], B], items: Iterable[A], ahead: int) -> Iterator[B]:
    """Results in the order of the items, with at most `ahead` of them under way: memory stays flat."""
    waiting: deque[Future[B]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:  # whoever stops early finds nothing still under way
        for future in waiting:
            future.cancel()
        wait(waiting)


def load_inputs(dataset: Dataset, entries: Sequence[Entry], preprocess: Preprocess, pool: ThreadPoolExecutor) -> Tensor:
    """The entries' inputs, uint8 (S, C, H, W). An image that changed since it was first read is an error."""
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
    """The entries' inputs and, where they are asked for, the images that they are of.

    Canvases that are `ready`, by their places in the dataset, are not made again.
    """
    originals: dict[int, Tensor] = {}
    inputs = torch.empty(len(entries), preprocess.channels, preprocess.height, preprocess.width, dtype=torch.uint8)

    def load(start: int) -> None:
        for place, entry in enumerate(entries[start : start + ERRAND], start):
            if entry.index in ready:
                inputs[place] = ready[entry.index]
                continue
            image = dataset[entry.index].image if entry.index < len(dataset) else None
            if image is None or image_id(image) != entry.image:
                raise DataError(
                    f"{entry.name} has changed or moved since this run began; restore it, or run into another folder"
                )
            inputs[place] = preprocess.model_input(image)
            if with_originals:
                originals[place] = preprocess.convert_channels(image)

    for _ in in_order(pool, load, range(0, len(entries), ERRAND), 64):
        pass
    return Images(inputs, [originals[place] for place in range(len(originals))])


def id_numbers(entries: Sequence[Entry]) -> Tensor:
    """The entries' ids as the numbers that name their draws."""
    return torch.tensor([id_number(entry.image) for entry in entries], dtype=torch.int64)


def one_ahead(make: Callable[[A], B], items: Iterable[A]) -> Iterator[B]:
    """What is made of each item, the next one being made while the last is used."""
    with ThreadPoolExecutor(1, "shards") as pool:
        yield from in_order(pool, make, items, 1)


def give_back_freed_memory() -> None:
    """Tell glibc to give freed memory back to the system.

    Threads that decode leave small holes among large buffers, and without this a run needs a third more memory after a
    thousand images than after a hundred. Once a unit costs nothing that can be measured; after every batch it would.
    """
    if sys.platform.startswith("linux"):
        with suppress(OSError, AttributeError):  # another C library
            ctypes.CDLL(None).malloc_trim(0)
