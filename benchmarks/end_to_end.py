"""Images per second of a run compared with the bare model; the two alternate."""

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
class Round:
    """A run between two measurements of the bare model: images per second, and seconds per operator."""

    bare: float
    measuring: float
    whole: float
    images: int
    seconds: dict[str, float]

    @property
    def ratio(self) -> float:
        """Images per second relative to the bare model; decoding, operators, distances and rows are the overhead."""
        return self.measuring / self.bare


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
    """Measure the bare model, a run with all operators, and the bare model again."""
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
    """Return seconds per operator, from the times at which the files of a run were written."""
    written = sorted((file.stat().st_mtime, unquote(file.parent.name)) for file in run.glob("rows/*/*/*/*.parquet"))
    seconds: dict[str, float] = defaultdict(float)
    for (earlier, _), (later, operator) in itertools.pairwise([(began, ""), *written]):
        seconds[operator] += later - earlier
    return dict(seconds)


def summary(rounds: list[Round]) -> dict[str, Any]:
    """Return the medians over rounds: the time that the bare model would need, divided by the time of the run.

    The time of the first operator includes decoding the first shard, during which the model is idle; `steady` leaves that
    operator out, since later shards are decoded while the model is busy.
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
