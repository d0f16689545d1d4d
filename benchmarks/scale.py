"""Large runs on paper, from measured rates, and a simulation of many workers: `python -m benchmarks.scale` writes the page.

Nothing large is run. Workers are simulated; who measures what is decided by the code that real runs use
(`engine/workers/schedule.py` for `--devices`, `config/part.py` for `--part`).
"""

from __future__ import annotations

import heapq
import json
import math
import os
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

import jinja2

from brinell.config.part import owners
from brinell.engine.workers.coordinator import PAUSE
from brinell.engine.workers.schedule import Schedule
from brinell.runs.status import RECENT

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "scale.md"
ROW = 42  # bytes, as measured (engine/estimates/plan.py)
MAP_ROWS = 8  # rows for each image and window size (engine/estimates/plan.py: ROWS_OF_MAPS)
ENTRIES, SIMULATED = HERE / "results" / "entries.json", HERE / "results" / "simulation.json"
DEVICES = (1, 8, 64, 1000)


def results(name: str) -> dict[str, Any]:
    """Return the figures of a benchmark."""
    found: dict[str, Any] = json.loads((HERE / "results" / f"{name}.json").read_text())
    return found


@dataclass(frozen=True)
class Study:
    """A large run: its images, queries, how many of them a device makes in a second, its rows and its bytes."""

    name: str
    images: int
    queries: float
    rate: float
    rows: float
    bytes: float
    reads: float  # images read and decoded, survey and clean answers included
    bottleneck: str

    @property
    def device_hours(self) -> float:
        """Hours on one device."""
        return self.queries / self.rate / 3600

    @property
    def reads_per_second(self) -> float:
        """Images to decode in a second for a device to be busy."""
        return self.reads / (self.device_hours * 3600)


def studies() -> list[Study]:
    """Return three large runs on paper."""
    profile, fragile = results("accelerator"), results("fragility_accelerator")
    rate = profile["bare"] * profile["ratio"]
    images, operators, levels, models = 50_000, 14, 30, 20
    rows = images * operators * (levels + 1) * models
    windows = images * fragile["windows"]
    billion, share = 1_000_000_000, 0.001
    sampled = billion * operators * levels * share
    clean_rows = billion * operators
    return [
        Study(
            "ImageNet, 50,000 images × 14 operators × 30 levels × 20 models",
            images,
            images * models * (operators * levels + 1),
            rate,
            rows,
            rows * ROW,
            images * (1 + 2 * models),
            "the models; one that is slower than ResNet-50 takes as many times longer",
        ),
        Study(
            "fragility of 50,000 photographs of 500×375, all windows",
            images,
            windows + images,
            fragile["rate"],
            images * MAP_ROWS * 4,
            images * fragile["maps"]["megabytes"] * 1e6,
            images * 3,
            "the model; maps are the storage",
        ),
        Study(
            "a billion images at budget 0.001, one model, 14 operators × 30 levels",
            billion,
            billion + sampled,
            rate,
            clean_rows + sampled,
            (clean_rows + sampled) * ROW,
            billion * 3,
            "reading: every image is surveyed, answered and loaded for 0.42 queries; then memory, and rows of clean images",
        ),
    ]


def measure_entries(count: int = 200_000) -> None:
    """Measure the memory that a process needs for each image of a run: the table of samples, and its entries."""
    import pyarrow as pa

    from brinell.engine.clean import readable
    from brinell.runs.arrow import SAMPLES_TABLE

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    columns: dict[str, list[Any]] = {
        "index": list(range(count)),
        "image": [f"{index:032x}" for index in range(count)],
        "name": [f"n{index % 1000:08d}/ILSVRC2012_val_{index:08d}.JPEG" for index in range(count)],
        "label": [str(index % 1000) for index in range(count)],
        "label_is_index": [False] * count,
        "height": [375] * count,
        "width": [500] * count,
    }
    arrays = [
        pa.array(columns[one.name], one.type) if one.name in columns else pa.nulls(count, one.type) for one in SAMPLES_TABLE
    ]
    table = pa.table(arrays, schema=SAMPLES_TABLE)
    del columns, arrays
    before = resident()
    entries = readable(table)
    used = resident() - before
    found = {"images": len(entries), "table": round(table.nbytes / count), "entries": round(used / count)}
    ENTRIES.write_text(json.dumps(found, indent=1) + "\n")


# ---- simulation ----


@dataclass(frozen=True)
class Fleet:
    """Simulated workers: some are slow, all of them die now and then and come back."""

    workers: int
    slow_share: float
    slow_times: float
    hours_between_deaths: float  # of one worker; infinite: none dies
    restart: float = 120.0  # seconds until a dead worker is replaced and has loaded its model

    def life(self, random: Random) -> float:
        """Return the seconds after which a worker dies."""
        hours = self.hours_between_deaths
        return math.inf if math.isinf(hours) else random.expovariate(1 / (hours * 3600))


@dataclass(frozen=True)
class Outcome:
    """How long it took, compared with workers that never wait, and how many tasks were begun more than once."""

    seconds: float
    ideal: float
    repeated: int
    deaths: int


def speeds(fleet: Fleet, random: Random) -> list[float]:
    """Return how many times longer than usual each worker takes."""
    return [
        fleet.slow_times if random.random() < fleet.slow_share else random.uniform(0.95, 1.05) for _ in range(fleet.workers)
    ]


def simulate_schedule(fleet: Fleet, tasks: int, seconds: float, seed: int = 0) -> Outcome:
    """Simulate workers that are handed one task after the other."""
    random = Random(seed)
    speed = speeds(fleet, random)
    schedule, now, deaths, begun = Schedule(range(tasks)), 0.0, 0, 0
    events: list[tuple[float, int, str]] = []
    waiting = set(range(fleet.workers))
    serial = fleet.workers
    place = {worker: worker for worker in waiting}  # the machine of a worker: its replacement is as slow
    while schedule.left:
        for worker in sorted(waiting):
            if schedule.next(worker, now) is None:
                break  # nobody else gets one either
            waiting.discard(worker)
            begun += 1
            takes = seconds * speed[place[worker]] * random.lognormvariate(0, 0.2)
            dies = fleet.life(random)
            heapq.heappush(events, (now + min(takes, dies), worker, "lost" if dies < takes else "done"))
        if waiting and now + PAUSE < events[0][0]:  # a task may be late by then
            now += PAUSE
            continue
        now, worker, kind = heapq.heappop(events)
        if kind == "done":
            schedule.finish(worker, now)
            waiting.add(worker)
        elif kind == "lost":
            schedule.lose(worker)
            deaths += 1
            place[serial] = place[worker]
            heapq.heappush(events, (now + fleet.restart, serial, "back"))
            serial += 1
        else:
            waiting.add(worker)
    ideal = tasks * seconds / sum(1 / each for each in speed)
    return Outcome(now, ideal, begun - tasks, deaths)


def simulate_parts(fleet: Fleet, tasks: int, seconds: float, seed: int = 0) -> Outcome:
    """Simulate parts, each on a machine of its own, that are rerun where they die."""
    random = Random(seed)
    speed = speeds(fleet, random)
    own: list[deque[int]] = [deque() for _ in range(fleet.workers)]
    for task, owner in enumerate(owners(tasks, fleet.workers)):
        own[owner - 1].append(task)
    ends, deaths, repeated = [], 0, 0
    for worker, mine in enumerate(own):
        now = 0.0
        while mine:
            takes = seconds * speed[worker] * random.lognormvariate(0, 0.2)
            dies = fleet.life(random)
            if dies < takes:
                now, deaths, repeated = now + dies + fleet.restart, deaths + 1, repeated + 1
            else:
                mine.popleft()
                now += takes
        ends.append(now)
    return Outcome(max(ends), tasks * seconds / sum(1 / each for each in speed), repeated, deaths)


FLEETS = {
    "1,000 workers, all alike": Fleet(1000, 0.0, 1.0, math.inf),
    "5 % of them four times slower": Fleet(1000, 0.05, 4.0, math.inf),
    "and each dies every two hours": Fleet(1000, 0.05, 4.0, 2.0),
}


def simulate() -> None:
    """Simulate the fragility study on many workers."""
    tasks, seconds = 50_000, results("fragility_accelerator")["seconds"]
    found = {
        name: {
            "parts": asdict(simulate_parts(fleet, tasks, seconds)),
            "schedule": asdict(simulate_schedule(fleet, tasks, seconds)),
        }
        for name, fleet in FLEETS.items()
    }
    SIMULATED.write_text(json.dumps({"tasks": tasks, "seconds": seconds, "fleets": found}, indent=1) + "\n")


def render() -> str:
    """Return the page, from stored results."""
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    entry = results("entries")["table"] + results("entries")["entries"]
    return environment.from_string((HERE / "scale.md.j2").read_text()).render(
        studies=studies(),
        devices=DEVICES,
        simulated=results("simulation"),
        status=results("status"),
        workers=results("workers"),
        short=results("workers_short"),
        driver=results("driver"),
        recent=RECENT,
        entry=entry,
        images=1_000_000_000,
    )


if __name__ == "__main__":
    for file, measure in ((ENTRIES, measure_entries), (SIMULATED, simulate)):
        if not file.exists():  # delete a file to measure again
            measure()
    PAGE.write_text(render())
