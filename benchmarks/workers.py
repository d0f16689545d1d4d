"""How fast several workers are, compared with one: `python -m benchmarks.workers`, where Ray is installed.

One core means that the run, its workers and what Ray starts are bound to it, and that they compute in one thread. Every run
is a process of its own. Variants alternate over several rounds, so that noise on the machine affects all of them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Hashable
from importlib.metadata import version
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.end_to_end import Clock, operators
from benchmarks.photographs import write_photographs
from brinell.api import open_setup
from brinell.config.execution import Execution
from brinell.engine.runner import execute
from brinell.engine.workers import coordinator
from brinell.engine.workers.schedule import Schedule

RESULT = Path(__file__).parent / "results" / "workers.json"
MODEL, IMAGES, ROUNDS = "efficientnet_lite0", 32, 3
LENS = {"name": "profile", "operators": operators()[::3], "variant": "published", "levels": 30}
#: by name: options of a run, and its cores
VARIANTS: dict[str, tuple[dict[str, Any], int]] = {
    "one process, one core": ({}, 1),
    "devices, 1": ({"devices": "cpu"}, 1),
    "ray, 1": ({"cluster": "ray", "actors": 1}, 1),
    "one process, two cores": ({}, 2),
    "devices, 2": ({"devices": "cpu,cpu"}, 2),
    "ray, 2": ({"cluster": "ray", "actors": 2}, 2),
}
TWICE = "two runs at once"  # each on a core of its own: what the machine can give


class Timed(Schedule[Any]):
    """A schedule that knows when each worker got its first task, and when the last task ended."""

    first: dict[int, float] = {}  # noqa: RUF012 - of the one run of this process
    last = 0.0

    def next(self, worker: int, now: float) -> Hashable | None:
        """Return the next task of a worker."""
        Timed.first.setdefault(worker, time.time())
        return super().next(worker, now)

    def finish(self, worker: int, now: float) -> Hashable | None:
        """Note that a task is done."""
        Timed.last = time.time()
        return super().finish(worker, now)


def run_once(photographs: str, options: dict[str, Any], began: float) -> dict[str, float]:
    """Run, and return the seconds of the whole command since it was started, and of measuring with workers that are up."""
    clock = Clock()
    coordinator.Schedule = Timed  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as folder:
        data = {"source": photographs, "labels": "prediction"}
        execute(open_setup(MODEL, data, {"lens": LENS, "out": folder}, Execution(**options)), clock)
    if Timed.first:
        return {"whole": time.time() - began, "steady": Timed.last - mean(Timed.first.values())}
    _, first, last = clock.stages[f"profile: {MODEL}"]
    return {"whole": time.time() - began, "steady": last - first}


def start(photographs: Path, options: dict[str, Any], cores: list[int]) -> subprocess.Popen[str]:
    """Start a run on some cores."""
    line = [sys.executable, "-m", "benchmarks.workers", str(photographs), json.dumps(options), str(time.time())]
    environment = os.environ if len(cores) > 1 else {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        line, env=environment, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: os.sched_setaffinity(0, cores)
    )


def seconds_of(run: subprocess.Popen[str]) -> dict[str, float]:
    """Return what a run has measured, when it has ended."""
    output, _ = run.communicate()
    if run.returncode:
        raise SystemExit(run.returncode)
    found: dict[str, float] = json.loads(output.splitlines()[-1])
    return found


def one_round(photographs: Path) -> dict[str, dict[str, float]]:
    """Return the seconds of every variant."""
    found = {}
    for name, (options, cores) in VARIANTS.items():
        found[name] = seconds_of(start(photographs, options, list(range(cores))))
        print(name, found[name], flush=True)
    both = [seconds_of(one) for one in [start(photographs, {}, [core]) for core in (0, 1)]]
    return found | {TWICE: {key: mean(one[key] for one in both) / 2 for key in both[0]}}  # per run


def summary(rounds: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Return medians and ranges over rounds: queries per second, and ratios within a round."""
    queries = IMAGES * len(LENS["operators"]) * int(LENS["levels"])  # type: ignore[arg-type]

    def spread(values: list[float]) -> list[float]:
        return [round(value, 3) for value in (median(values), min(values), max(values))]

    def ratio(name: str, base: str, key: str) -> list[float]:
        return spread([one[base][key] / one[name][key] for one in rounds])

    rates = {
        name: {key: spread([queries / one[name][key] for one in rounds]) for key in ("whole", "steady")}
        for name in rounds[0]
    }
    ratios = {
        key: {
            **{f"{way}, 1": ratio(f"{way}, 1", "one process, one core", key) for way in ("devices", "ray")},
            **{f"{way}, 2": ratio(f"{way}, 2", f"{way}, 1", key) for way in ("devices", "ray")},
            **{name: ratio(name, "one process, one core", key) for name in ("one process, two cores", TWICE)},
        }
        for key in ("whole", "steady")
    }
    fixed = {name: median(one[name]["whole"] - one[name]["steady"] for one in rounds) for name in VARIANTS}
    facts = {"model": MODEL, "images": IMAGES, "queries": queries, "rounds": len(rounds), "ray": version("ray")}
    return facts | {"rates": rates, "ratios": ratios, "fixed": fixed, "seconds": rounds}


def main() -> None:
    """Measure, and store the result."""
    with tempfile.TemporaryDirectory() as folder:
        write_photographs(Path(folder), IMAGES)
        start(Path(folder), {}, [0, 1]).communicate()  # the network is exported once
        rounds = [one_round(Path(folder)) for _ in range(ROUNDS)]
    RESULT.write_text(json.dumps(summary(rounds), indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(run_once(sys.argv[1], json.loads(sys.argv[2]), float(sys.argv[3]))))
    else:
        main()
