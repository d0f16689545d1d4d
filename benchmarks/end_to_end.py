"""A whole run's images per second over the bare model's, the two taken in turns."""

from __future__ import annotations

import itertools
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import unquote

import brinell
from brinell.api import open_setup
from brinell.config.execution import Execution
from brinell.engine.progress import Advance, Silent
from brinell.engine.runner import execute
from brinell.models.model import Model


class Clock(Silent):
    """Notes how many steps each stage has, when it began and when its last step was done."""

    def __init__(self) -> None:
        self.stages: dict[str, list[float]] = {}

    def stage(self, what: str, total: int, unit: str) -> Advance:
        """Begin a stage."""
        began = time.time()
        self.stages[what] = [total, began, began]

        def advance(_: int) -> None:
            self.stages[what][2] = time.time()

        return advance


@dataclass(frozen=True)
class Round:
    """One run between two looks at the bare model: images a second, and the seconds of each operator."""

    bare: float
    measuring: float
    whole: float
    images: int
    seconds: dict[str, float]

    @property
    def ratio(self) -> float:
        """Measured images a second over the bare model's: decoding, operators, distances and rows are what is lost."""
        return self.measuring / self.bare


def per_second(ask: Callable[[], int], seconds: float) -> float:
    """How many images a second a function answers; it gives how many it answered in one call."""
    start = time.perf_counter()
    done = 0
    while time.perf_counter() - start < seconds:
        done += ask()
    return done / (time.perf_counter() - start)


def operators() -> list[str]:
    """All operators that need no gradient: those cost forward passes alone."""
    return [op.name for op in brinell.OPERATORS.values() if op.variant == "published" and not op.white_box]


def one_round(
    model: Model, data: Sequence[Any], names: list[str], execution: Execution, bare: Callable[[], int], seconds: float
) -> Round:
    """The bare model, a run with all operators, the bare model again."""
    before = per_second(bare, seconds)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        setup = open_setup(
            model,
            {"source": data, "labels": "prediction"},
            {"lens": {"name": "profile", "operators": names, "variant": "published"}, "out": folder},
            execution,
        )
        start = time.time()
        execute(setup, clock)
        whole = time.time() - start
        total, began, ended = clock.stages[f"profile: {model.name}"]
        spent = _seconds_of_operators(Path(folder), began)
    after = per_second(bare, seconds)
    return Round((before + after) / 2, total / (ended - began), total / whole, int(total), spent)


def _seconds_of_operators(run: Path, began: float) -> dict[str, float]:
    """From the times at which a run's units were written."""
    written = sorted((file.stat().st_mtime, unquote(file.parent.name)) for file in run.glob("rows/*/*/*/*.parquet"))
    seconds: dict[str, float] = defaultdict(float)
    for (earlier, _), (later, operator) in itertools.pairwise([(began, ""), *written]):
        seconds[operator] += later - earlier
    return dict(seconds)


def summary(rounds: list[Round]) -> dict[str, Any]:
    """The median of the rounds: the time that the bare model would take over the time that the runs took.

    The first operator's time holds the decoding of the first shard, during which the model has nothing to do; `steady`
    leaves that operator out, as later shards are decoded while the model works.
    """
    names = list(rounds[0].seconds)

    def over_bare(one: Round, some: list[str]) -> float:
        return one.images / one.bare * len(some) / len(names) / sum(one.seconds[name] for name in some)

    return {
        "bare": median(r.bare for r in rounds),
        "ratio": median(r.ratio for r in rounds),
        "steady": median(over_bare(r, names[1:]) for r in rounds),
        "whole": median(r.whole / r.bare for r in rounds),
        "rounds": [r.ratio for r in rounds],
        "operators": {name: median(over_bare(r, [name]) for r in rounds) for name in names},
    }
