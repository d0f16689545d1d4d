"""Several workers on one machine: the rows of one process, also if a worker is killed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import brinell
from brinell.config.devices import parse_devices
from brinell.engine import spread
from brinell.engine.crew import Event, Processes
from brinell.engine.schedule import Schedule
from brinell.engine.worker import ShardTask
from brinell.errors import BrinellError, RunError
from test_budget import same
from test_parts import PLAIN, PROFILE, measure


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0-2", ["cuda:0", "cuda:1", "cuda:2"]),
        ("0,2", ["cuda:0", "cuda:2"]),
        ("3", ["cuda:3"]),
        ("cpu, cpu", ["cpu", "cpu"]),
        ("cuda:1,cpu", ["cuda:1", "cpu"]),
    ],
)
def test_devices_are_named_in_short(text: str, expected: list[str]) -> None:
    assert parse_devices(text) == expected


@pytest.mark.parametrize("text", ["", "0-", "3-1", "gpu", "cpu;cpu", "0--2", "-1", "0-9999"])
def test_other_devices_are_refused(text: str) -> None:
    with pytest.raises(BrinellError, match="devices"):
        parse_devices(text)


class Scripted:
    """Workers of which the first dies with its first task, and others fail or work as they are told."""

    def __init__(self, size: int, *, never_ready: bool = False, error: str | None = None) -> None:
        self.size, self.never_ready, self.error = size, never_ready, error
        self.started = 0
        self.events: list[Event] = []
        self.measured: list[ShardTask] = []

    def start(self) -> int:
        self.started += 1
        self.events.append(Event(self.started, "lost" if self.never_ready else "ready", "exit code 1"))
        return self.started

    def send(self, worker: int, task: ShardTask) -> None:
        if self.error is not None:
            self.events.append(Event(worker, "failed", self.error))
        elif worker == 1:
            self.events.append(Event(worker, "lost", "exit code -9"))
        else:
            self.measured.append(task)
            self.events.append(Event(worker, "done"))

    def wait(self, seconds: float) -> list[Event]:
        found, self.events = self.events, []
        return found

    def stop(self) -> None:
        """Nothing runs."""


TASKS = [ShardTask(0, shard) for shard in range(5)]


def test_a_dead_worker_is_replaced_and_only_its_task_is_done_again() -> None:
    crew, said, done = Scripted(2), list[str](), list[ShardTask]()
    spread.run_crew(crew, Schedule(TASKS), done.append, said.append)
    assert sorted(done) == TASKS and sorted(crew.measured) == TASKS and crew.started == 3
    assert said == ["a worker ended (exit code -9) and is replaced; its shard is measured again"]


def test_workers_that_never_get_ready_end_the_run() -> None:
    with pytest.raises(RunError, match=r"3 workers ended before they were ready \(exit code 1\)"):
        spread.run_crew(Scripted(2, never_ready=True), Schedule(TASKS), lambda task: None, lambda text: None)


def test_an_error_of_a_worker_is_that_of_the_run() -> None:
    with pytest.raises(RunError, match="has changed"):
        spread.run_crew(Scripted(1, error="cat.jpg has changed"), Schedule(TASKS), lambda task: None, lambda text: None)


def test_python_objects_and_early_stops_need_one_process(greys: Path, tmp_path: Path) -> None:
    several = PLAIN.model_copy(update={"devices": "cpu,cpu"})
    with pytest.raises(BrinellError, match="Python objects"):
        brinell.run(
            "fake:grey", [(image, 0) for image in ()] or _images(), out=tmp_path / "run", execution=several, quiet=True
        )
    with pytest.raises(BrinellError, match="in one process"):
        measure(greys, tmp_path / "run", budget="±5%", execution=several)


def _images() -> list[tuple[Any, int]]:
    import numpy as np

    return [(np.full((8, 8, 3), 200, np.uint8), 0)]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_workers_give_the_rows_of_one_process_and_one_may_die(
    workers: int, greys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, plain_send = [0], Processes.send

    def kill_at_the_second_task(self: Processes, worker: int, task: ShardTask) -> None:
        sent[0] += 1
        if sent[0] == 2:
            self._workers[worker][0].kill()
        plain_send(self, worker, task)

    monkeypatch.setattr(Processes, "send", kill_at_the_second_task)
    execution = PLAIN.model_copy(update={"devices": ",".join(["cpu"] * workers)})
    joint = brinell.run("fake:grey", greys, lens=PROFILE, out=tmp_path / "joint", execution=execution, quiet=True)
    assert sent[0] >= 7  # six shards, and at least one of them again
    assert joint.finished and same(joint, measure(greys, tmp_path / "plain"))
    assert not (tmp_path / "joint/unfinished").exists()
