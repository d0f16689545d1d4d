"""Choose among failures: without near-duplicates, a number per class, and a number in total."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import TypeVar

import torch
from torch import Tensor

from brinell.curation.duplicates import DuplicateFilter, perceptual_hashes
from brinell.curation.failures import Failure
from brinell.curation.options import CurateOptions
from brinell.curation.records import class_of
from brinell.curation.render import FailureRenderer
from brinell.engine.progress import Reporter

A = TypeVar("A")

HASHED = 64  # images per batch


def limit_failures(
    found: Sequence[Failure],
    options: CurateOptions,
    renderer: FailureRenderer,
    reporter: Reporter,
    steps: list[str],
) -> list[Failure]:
    """Return the failures that the limits leave, in the order in which they were found; describe each step.

    The least changed failures of all classes and operators are taken in turn.
    """
    order = take_turns(found, options)
    if options.near_duplicates is not None:
        bits, duplicates = _hash(found, renderer, reporter), DuplicateFilter(options.near_duplicates)
        kept = [number for number in order if duplicates.admit(bits[number])]
        steps.append(f"{len(order) - len(kept):,} near-duplicates dropped (hashes within {options.near_duplicates} bits)")
        order = kept
    if options.per_class is not None:
        counts: Counter[str] = Counter()
        kept = []
        for number in order:
            name = class_of(found[number])
            counts[name] += 1
            if counts[name] <= options.per_class:
                kept.append(number)
        short = sum(count < options.per_class for count in counts.values())
        steps.append(f"{options.per_class:,} per class; {short} of {len(counts)} classes have fewer")
        order = kept
    if options.limit is not None and len(order) > options.limit:
        steps.append(f"the first {options.limit:,} of {len(order):,}")
        order = order[: options.limit]
    return [found[number] for number in sorted(order)]


def _hash(failures: Sequence[Failure], renderer: FailureRenderer, reporter: Reporter) -> Tensor:
    """Return the perceptual hash of each failure, (N, 64) bits; images of one size are hashed together."""
    bits = torch.zeros(len(failures), 64, dtype=torch.bool)
    advance = reporter.stage("comparing images", len(failures), "images")
    for _, same in groupby(renderer.render(failures), lambda rendered: rendered.image.shape):
        for batch in batched(same, HASHED):
            images = torch.stack([rendered.image for rendered in batch])
            bits[[rendered.number for rendered in batch]] = perceptual_hashes(images)
            advance(len(batch))
    return bits


def batched(items: Iterable[A], size: int) -> Iterator[list[A]]:
    """Yield items in lists of a size."""
    rest = iter(items)
    while part := list(islice(rest, size)):
        yield part


def take_turns(failures: Sequence[Failure], options: CurateOptions) -> list[int]:
    """Return numbers of failures: the least changed of each class and operator, then the second of each, and so on."""
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, failure in enumerate(failures):
        groups[class_of(failure), failure.replay.change.id].append(number)

    def extent(number: int) -> tuple[float, float, int]:
        distance = failures[number].distances[options.distance]
        return float("inf") if distance is None else distance, failures[number].intensity, number

    turns = [
        (turn, *group, number)
        for group, numbers in groups.items()
        for turn, number in enumerate(sorted(numbers, key=extent))
    ]
    return [number for *_, number in sorted(turns)]
