"""Images per second of a run compared with the bare model; the two alternate."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeVar
from unittest.mock import patch

import brinell
from brinell.api import open_setup
from brinell.config.execution import Execution
from brinell.engine import measuring
from brinell.engine.progress import Advance, Silent
from brinell.engine.runner import execute
from brinell.engine.setup import jobs_of
from brinell.models.model import Model

STEADY = 0.05  # largest change of the bare model's speed during a round that counts: the machine may be shared
ATTEMPTS = 3  # rounds made at most, for each that is wanted
A = TypeVar("A")


class Clock(Silent):
    """Records the number of steps of each stage, its start and the time of its last step."""

    def __init__(self) -> None:
        self.stages: dict[str, list[float]] = {}

    def stage(self, what: str, total: int, unit: str, left: Callable[[], float | None] | None = None) -> Advance:
        """Start a stage."""
        began = time.time()
        self.stages[what] = [total, began, began]

        def advance(_: int) -> None:
            self.stages[what][2] = time.time()

        return advance


@dataclass(frozen=True)
class Part:
    """An operator's part of a run, between two measurements of the bare model: images, seconds, and images per second."""

    images: float
    seconds: float
    before: float
    after: float

    @property
    def alone(self) -> float:
        """Seconds that the bare model would need."""
        return 2 * self.images / (self.before + self.after)


@dataclass(frozen=True)
class Round:
    """A run whose operators alternate with the bare model, by operator; and the images per second of the whole run."""

    parts: dict[str, Part]
    whole: float

    @property
    def bare(self) -> float:
        """Images per second of the bare model."""
        return median(part.before for part in self.parts.values())

    @property
    def ratio(self) -> float:
        """Images per second relative to the bare model; decoding, operators, distances and rows are the overhead."""
        return self.over_bare(list(self.parts))

    def over_bare(self, names: Sequence[str]) -> float:
        """Return the same for some of the operators."""
        some = [self.parts[name] for name in names]
        return sum(part.alone for part in some) / sum(part.seconds for part in some)


def per_second(query: Callable[[], int], seconds: float) -> float:
    """Return the images per second of a function that returns the number of images of each call."""
    start = time.perf_counter()
    done = 0
    while time.perf_counter() - start < seconds:
        done += query()
    return done / (time.perf_counter() - start)


def operators() -> list[str]:
    """Return all operators that need no gradients, and so cost forward passes alone."""
    return [op.name for op in brinell.OPERATORS.values() if op.variant == "published" and not op.white_box]


def one_round(
    model: Model, data: Sequence[Any], names: list[str], execution: Execution, bare: Callable[[], int], seconds: float
) -> Round:
    """Measure a run with all operators, and the bare model before, between and after them.

    The machine may be shared, and its speed may change within seconds: so an operator is compared with what the bare model
    does next to it.
    """
    clock, pauses = Clock(), [_pause(bare, seconds)]
    measure_part = measuring._measure_part

    def measure_and_pause(*given: Any) -> Any:
        write = measure_part(*given)
        pauses.append(_pause(bare, seconds))
        return write

    with tempfile.TemporaryDirectory() as folder, patch.object(measuring, "_measure_part", measure_and_pause):
        setup = open_setup(
            model,
            {"source": data, "labels": "prediction"},
            {"lens": {"name": "profile", "operators": names, "variant": "published"}, "out": folder},
            execution,
        )
        start = time.time()
        execute(setup, clock)
        whole = time.time() - start - sum(pause.ended - pause.began for pause in pauses[1:])
        total, began, _ = clock.stages[f"profile: {model.name}"]
    operators = [change.id for change in jobs_of(setup)[0].changes]
    assert len(pauses) == len(operators) + 1, "a unit for each operator"
    starts = [began, *(pause.ended for pause in pauses[1:])]  # the first operator begins with the stage
    parts = {
        name: Part(total / len(operators), after.began - start, before.rate, after.rate)
        for name, start, (before, after) in zip(operators, starts, itertools.pairwise(pauses), strict=False)
    }
    return Round(parts, total / whole)


@dataclass(frozen=True)
class _Pause:
    """When the bare model ran, and its images per second."""

    began: float
    ended: float
    rate: float


def _pause(bare: Callable[[], int], seconds: float) -> _Pause:
    began = time.time()
    rate = per_second(bare, seconds)
    return _Pause(began, time.time(), rate)


def summary(rounds: list[Round]) -> dict[str, Any]:
    """Return the medians over rounds: the time that the bare model would need, divided by the time of the run.

    The time of the first operator includes decoding the first shard, during which the model is idle; `steady` leaves that
    operator out, since later shards are decoded while the model is busy.
    """
    names = list(rounds[0].parts)
    return {
        "bare": median(one.bare for one in rounds),
        "ratio": median(one.ratio for one in rounds),
        "steady": median(one.over_bare(names[1:]) for one in rounds),
        "whole": median(one.whole / one.bare for one in rounds),
        "rounds": [one.ratio for one in rounds],
        "operators": {name: median(one.over_bare([name]) for one in rounds) for name in names},
    }


def steady_rounds(make: Callable[[], A], wanted: int, drift: Callable[[A], float]) -> list[A]:
    """Return rounds during which the machine's speed hardly changed, or the steadiest if there are too few of these."""
    rounds: list[A] = []
    while sum(drift(one) <= STEADY for one in rounds) < wanted and len(rounds) < ATTEMPTS * wanted:
        rounds.append(make())
        print(f"round {len(rounds)}: the bare model's speed changed by {drift(rounds[-1]):.1%}", flush=True)
    return sorted(rounds, key=drift)[:wanted]
