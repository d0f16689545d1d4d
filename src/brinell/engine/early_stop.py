"""Runs that may stop early: images in a random order, block by block, until a rule says that there are enough of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from brinell.config.budget import CELLS, Budget
from brinell.engine.budget import begin_share
from brinell.engine.context import RunContext
from brinell.engine.missing import Wanted
from brinell.engine.setup import Job
from brinell.engine.shards import Entry, id_numbers
from brinell.errors import ConfigError
from brinell.lenses.headline import headline_sequences
from brinell.lenses.sampling import count_images, shuffled_ranks
from brinell.runs.run import Run
from brinell.units import format_clock

FIRST, GROWTH = 32, 1.25  # images to start with, and how their number grows


def growing_shares(images: int) -> Iterator[float]:
    """Yield shares of the queries, each of more images than the one before, up to all of them."""
    count = FIRST
    while count < images:
        yield CELLS * count / images
        count = math.ceil(count * GROWTH)
    yield CELLS


@dataclass(frozen=True)
class Sampled:
    """The rows that a run has so far: of these images, in the random order in which they came, out of `total`."""

    run: Run
    images: tuple[str, ...]
    total: int


@dataclass(frozen=True)
class Check:
    """What a stopping rule says: whether the run may stop, and what is known by now, in words.

    `times` is about how many times as many images it will take, None if that is unknown, and `target` what for.
    """

    stop: bool
    words: str
    times: float | None = None
    target: str = ""


class StoppingRule(Protocol):
    """Decides, after each block of images, whether a run has enough of them."""

    def __call__(self, sampled: Sampled) -> Check:
        """Check the rows that a run has."""
        ...


@dataclass(frozen=True)
class NarrowEnough:
    """Stops once the headline figure of every lens and model is known to ± `width`.

    The intervals are confidence sequences, which hold whenever one stops, and are about what all images would give.
    """

    width: float

    def __call__(self, sampled: Sampled) -> Check:
        """Check the widest interval."""
        known = headline_sequences(sampled.run, sampled.images, sampled.total, self.width)
        if not known:
            raise ConfigError(
                f"a target width needs a figure per image, and {', '.join(sampled.run.lenses)} has none here; "
                "give the budget as a share (0.1) or a number of queries"
            )
        widest = max(known, key=lambda one: one.half_width)
        words = f"{widest.what} of {widest.model} {widest.words}"
        times = (widest.half_width / self.width) ** 2  # an interval is half as wide with four times as many images
        return Check(widest.half_width <= self.width, words, times, f"±{100 * self.width:.3g}%")


def _time_left(found: Check, images: Sequence[str], kept: Sequence[Entry], pace: float) -> str:
    """Return in words how long it will take at a pace, in seconds per image; all images are always enough."""
    if found.stop or found.times is None:
        return ""
    more = min(len(kept), math.ceil(len(images) * found.times)) - len(images)
    return f"; {found.target} in about {format_clock(more * pace)}" if more > 0 else ""


def rule_of(budget: Budget | None) -> StoppingRule | None:
    """Return when a run with a target width stops."""
    return None if budget is None or budget.width is None else NarrowEnough(budget.width)


def grow(
    context: RunContext,
    jobs: Sequence[Job],
    kept: list[Entry],
    wanted: Wanted,
    rule: StoppingRule,
    measure: Callable[[Job, Wanted], None],
) -> Wanted:
    """Measure images in a random order, block by block, until the rule says stop; return the share that it took."""
    order = torch.argsort(shuffled_ranks(wanted.seed, id_numbers(kept))).tolist()
    held = context.manifest["budget"]["share"] if context.manifest["finished"] else 0.0
    began, first = time.monotonic(), count_images(held / CELLS, len(kept))
    for share in growing_shares(len(kept)):
        if share < held:
            continue
        wanted = replace(wanted, share=share, sampled=True)
        begin_share(context, jobs, kept, wanted)
        for job in jobs:
            measure(job, wanted)
        images = tuple(kept[place].image for place in order[: context.manifest["budget"]["images"]])
        found = rule(Sampled(Run(context.store), images, len(kept)))
        pace = (time.monotonic() - began) / max(1, len(images) - first)
        context.reporter.say(f"{len(images)} of {len(kept)} images: {found.words}{_time_left(found, images, kept, pace)}")
        if found.stop:
            break
    return wanted
