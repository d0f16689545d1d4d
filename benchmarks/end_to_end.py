"""A whole run's images per second over the bare model's, the two taken in turns."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

import brinell
from brinell.api import _parts
from brinell.engine import Silent, execute
from brinell.engine.progress import Tick
from brinell.execution import Execution
from brinell.models import Model

#: seconds of the bare model before and after each run
BARE_SECONDS = 6.0


class Clock(Silent):
    """Notes when each stage began and when its last step was done."""

    def __init__(self) -> None:
        self.stages: dict[str, list[float]] = {}

    def stage(self, what: str, total: int, unit: str) -> Tick:
        began = time.perf_counter()
        self.stages[what] = [total, began, began]

        def tick(_: int) -> None:
            self.stages[what][2] = time.perf_counter()

        return tick


@dataclass(frozen=True)
class Round:
    """One run between two looks at the bare model."""

    operator: str
    bare: float
    measuring: float
    whole: float
    images: int

    @property
    def ratio(self) -> float:
        """Measured images a second over the bare model's."""
        return self.measuring / self.bare


def per_second(ask: Callable[[], int], seconds: float) -> float:
    """How many images a second a function answers; it gives how many it answered in one call."""
    start = time.perf_counter()
    done = 0
    while time.perf_counter() - start < seconds:
        done += ask()
    return done / (time.perf_counter() - start)


def one_round(
    model: Model, data: Sequence[object], operator: str, execution: Execution, bare: Callable[[], int], seconds: float
) -> Round:
    """The bare model, a run with one operator, the bare model again."""
    before = per_second(bare, seconds)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        parts = _parts(
            model,
            {"source": data, "labels": "prediction"},
            lens={"name": "profile", "operators": [operator]},
            select="all",
            seed=0,
            out=folder,
            execution=execution,
        )
        start = time.perf_counter()
        execute(parts, clock)
        whole = time.perf_counter() - start
    after = per_second(bare, seconds)
    total, began, ended = clock.stages[f"profile of {model.name}"]
    return Round(operator, (before + after) / 2, total / (ended - began), total / whole, int(total))


def summary(rounds: list[Round]) -> dict[str, float]:
    """All operators together: the time of the bare model's passes over the time the runs took."""
    bare_time = sum(r.images / r.bare for r in rounds)
    return {
        "bare": statistics.mean(r.bare for r in rounds),
        "ratio": bare_time / sum(r.images / r.measuring for r in rounds),
        "whole": bare_time / sum(r.images / r.whole for r in rounds),
        "lowest": min(r.ratio for r in rounds),
        "highest": max(r.ratio for r in rounds),
    }


def operators() -> list[str]:
    """All operators that need no gradient: those cost forward passes alone."""
    return [op.name for op in brinell.OPERATORS.values() if op.semantics == "published" and not op.white_box]


def accelerator_bare(model: Model, batch: int) -> Callable[[], int]:
    """The module alone on one normalised batch that lies on the device."""
    pre = model.preprocess
    images = model.preprocess.normalise(
        torch.full((batch, pre.channels, pre.height, pre.width), 128, dtype=torch.uint8, device=model.device)
    )

    def ask() -> int:
        with torch.inference_mode():
            for _ in range(10):
                answer = model.forward(images)
            answer[0, 0].item()  # waits for the device
        return 10 * batch

    ask()
    return ask
