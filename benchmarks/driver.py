"""The memory of the process that hands out the units of a large run: `python -m benchmarks.driver`.

The process is that of a real run: it reads the images, answers the clean ones, hands out shards of one tiny image each, and
checks every file in the end. In the small run, two workers measure every unit, and all rows are read for the report's
pictures. In the large one, a worker measures one shard, whose files then stand for those of all others: workers have their
own memory, and this is about the process that they report to.
"""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import brinell
from brinell.api import open_setup
from brinell.config.execution import Execution
from brinell.engine.progress import Advance, Silent, TimeLeft
from brinell.engine.runner import execute
from brinell.engine.workers import coordinator
from brinell.engine.workers.processes import Event, Processes
from brinell.engine.workers.worker import Order, ShardTask
from brinell.runs.run import Run

RESULT = Path(__file__).parent / "results" / "driver.json"
SMALL, LARGE, WORKERS = 10_000, 100_000, 2


class Copying(Processes):
    """A worker that measures one shard; links to its files stand for the files of all others."""

    def __init__(self, orders: Sequence[Order]) -> None:
        super().__init__(orders)
        self._rows, self._files = Path(orders[0].config["out"]) / "rows", list[Path]()
        self._done: list[Event] = []

    def send(self, worker: int, task: ShardTask) -> None:
        """Give the worker its first task, or do another one here."""
        self._files = self._files or list(self._rows.rglob("*.parquet"))
        if not self._files:
            super().send(worker, task)
            return
        for file in self._files:
            os.link(file, file.with_name(f"{task.shard:05d}.parquet"))
        self._done.append(Event(worker, "done"))

    def wait(self, seconds: float) -> list[Event]:
        """Return what was done."""
        done, self._done = self._done, []
        return done or super().wait(seconds)


class Watch(Silent):
    """Records this process's memory at every tenth of the units, and how long handing them out takes."""

    def __init__(self) -> None:
        self.tenths: list[float] = []
        self.seconds = 0.0

    def stage(self, what: str, total: int, unit: str, left: TimeLeft | None = None) -> Advance:
        """Start a stage."""
        done, began = 0, time.perf_counter()

        def advance(count: int) -> None:
            nonlocal done
            done += count
            self.seconds = time.perf_counter() - began
            if done * 10 // total > len(self.tenths):
                self.tenths.append(resident())

        return advance if what.endswith("workers") else lambda count: None


def changes() -> list[str]:
    """Return the operators that are quick on tiny images."""
    slow = ("imagenet_c", "imagenet_c_bar")
    return [op.id for op in brinell.OPERATORS.values() if op.variant not in slow and not op.white_box]


def run_once(folder: Path, units: int) -> dict[str, Any]:
    """Execute a run of so many units, and return the memory of this process, in MB, and seconds."""
    if units > SMALL:
        coordinator.Processes = Copying  # type: ignore[misc]
    workers, names = 1 if units > SMALL else WORKERS, changes()
    images = math.ceil(units / len(names))
    (folder / "images" / "light").mkdir(parents=True)
    generator = np.random.default_rng(0)
    for index in range(images):
        pixels = Image.fromarray(generator.integers(60, 256, (32, 32, 3), dtype=np.uint8))
        pixels.save(folder / "images" / "light" / f"{index:05d}.png")
    setup = open_setup(
        "fake:grey:0.25?size=32",
        str(folder / "images"),
        {"lens": {"name": "profile", "operators": names, "levels": 1}, "out": folder / "run"},
        Execution(batch=1, shard=1, runtime="torch", devices=",".join(["cpu"] * workers)),
    )
    before, watch, began, found = resident(), Watch(), time.perf_counter(), dict[str, float]()

    def checked(run: Run, lens: str) -> None:
        found.update(peak=peak(), whole=time.perf_counter() - began)
        if units > SMALL:
            raise Enough

    with suppress(Enough):
        execute(setup, watch, checked)
        found["with_pictures"] = peak()
    return {
        "units": images * len(names),
        "tasks": images,
        "before": before,
        "tenths": watch.tenths,
        "seconds": watch.seconds,
        **found,
    }


class Enough(Exception):
    """Everything is measured and checked."""


def peak() -> float:
    """Return the most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def resident() -> float:
    """Return the memory of this process in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def main() -> None:
    """Measure each size in a process of its own, and store the results."""
    found = []
    for units in (SMALL, LARGE):
        with tempfile.TemporaryDirectory() as folder:
            line = [sys.executable, "-m", "benchmarks.driver", folder, str(units)]
            found.append(
                json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout.splitlines()[-1])
            )
        print(found[-1], flush=True)
    RESULT.write_text(json.dumps({"workers": WORKERS, "runs": found}, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(run_once(Path(sys.argv[1]), int(sys.argv[2]))))
    else:
        main()
