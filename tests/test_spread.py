"""Several workers on one machine: the rows of one process, also if a worker is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import brinell
from brinell.config.devices import parse_devices
from brinell.config.execution import Execution
from brinell.engine.setup import assemble, jobs_of
from brinell.engine.shards import Entry
from brinell.engine.units import measured_sizes
from brinell.engine.workers import coordinator, schedule
from brinell.engine.workers.processes import Event, Processes
from brinell.engine.workers.ray_actors import _reason, divide
from brinell.engine.workers.schedule import Schedule
from brinell.engine.workers.worker import ShardTask
from brinell.errors import BrinellError, MissingExtra, RunError
from brinell.run_config import RunConfig
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
    workers, said, done = Scripted(2), list[str](), list[ShardTask]()
    coordinator.run_workers(workers, Schedule(TASKS), done.append, said.append)
    assert sorted(done) == TASKS and sorted(workers.measured) == TASKS and workers.started == 3
    assert said == ["a worker ended (exit code -9) and is replaced; its shard is measured again"]


def test_workers_that_never_get_ready_end_the_run() -> None:
    with pytest.raises(RunError, match=r"3 workers ended before they were ready \(exit code 1\)"):
        coordinator.run_workers(Scripted(2, never_ready=True), Schedule(TASKS), lambda task: None, lambda text: None)


def test_an_error_of_a_worker_is_that_of_the_run() -> None:
    with pytest.raises(RunError, match="has changed"):
        coordinator.run_workers(
            Scripted(1, error="a.jpg has changed"), Schedule(TASKS), lambda task: None, lambda text: None
        )


# ---- clusters ----


@pytest.mark.parametrize("text", ["ray", "ray://head:10001", "ray://10.0.0.1", "ray://[::1]:10001"])
def test_clusters_are_named_by_their_address(text: str) -> None:
    assert Execution(cluster=text).cluster == text and Execution(cluster=text).spread


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cluster": "dask"}, "expected --on ray or --on ray://HOST:PORT, got 'dask'"),
        ({"cluster": "ray://a b"}, "expected --on ray"),
        ({"cluster": "ray", "devices": "0-3"}, "--devices and --on can't be combined"),
        ({"actors": 2}, "add --on ray"),
        ({"actor_gpus": 0.5}, "add --on ray"),
        ({"cluster": "ray", "device": "cpu", "actor_gpus": 0.5}, "leave out --actor-gpus"),
    ],
)
def test_clusters_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BrinellError, match=message):
        Execution(**options)


@pytest.mark.parametrize(
    ("resources", "options", "expected"),
    [
        ({"CPU": 8.0}, {}, (8, 0.0)),
        ({"CPU": 64.0, "GPU": 8.0}, {}, (8, 1.0)),
        ({"CPU": 64.0, "GPU": 8.0}, {"actor_gpus": 0.5}, (16, 0.5)),
        ({"CPU": 64.0, "GPU": 8.0}, {"actor_gpus": 0.3}, (24, 0.3)),  # three on each: an actor has one accelerator
        ({"CPU": 64.0, "GPU": 1.0}, {"actor_gpus": 0.1}, (10, 0.1)),
        ({"CPU": 4.0, "GPU": 8.0}, {}, (4, 1.0)),  # each needs a core
        ({"CPU": 64.0, "GPU": 8.0}, {"device": "cpu"}, (64, 0.0)),
        ({"CPU": 64.0, "GPU": 8.0}, {"actor_gpus": 0}, (64, 0.0)),
        ({"CPU": 2.0}, {"actors": 100, "actor_gpus": 1}, (100, 1.0)),  # machines may join later
        ({}, {}, (1, 0.0)),
    ],
)
def test_a_cluster_has_as_many_actors_as_it_has_room_for(
    resources: dict[str, float], options: dict[str, Any], expected: tuple[int, float]
) -> None:
    assert divide(resources, Execution(cluster="ray", **options)) == expected


def test_without_ray_the_command_that_installs_it_is_named(
    greys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match=r"needs ray, which is not installed: pip install .*\[ray\]"):
        measure(greys, tmp_path / "run", execution=PLAIN.model_copy(update={"cluster": "ray"}))
    assert not (tmp_path / "run").exists()  # found out before images are read


def test_an_actor_sets_its_threads_before_torch_is_imported() -> None:
    code = "import sys, brinell.engine.workers.ray_actors; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_why_an_actor_ended_is_one_line() -> None:
    died = """The actor died unexpectedly before finishing this task.
\tclass_name: Holder
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker \
unexpectedly exits with a connection error code 2. End of file."""
    assert _reason(died) == "SYSTEM_ERROR: Worker unexpectedly exits with a connection error code 2"
    raised = "\x1b[36mray::Holder.measure()\x1b[39m (pid=7)\nTraceback (most recent call last):\n  File …\nKeyError: 'a'"
    assert _reason(raised) == "KeyError: 'a'"
    refused = "Initialization failure from server:\nTraceback (most recent call last):\n  …\nRuntimeError: It failed.\n"
    assert _reason(refused) == "RuntimeError: It failed."
    assert _reason("The actor's node is gone.\nmore") == "The actor's node is gone." and _reason("") == "no reason given"


def test_no_room_for_a_worker_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    workers, said, waits = Scripted(2), list[str](), [0]

    def wait(seconds: float) -> list[Event]:
        waits[0] += 1
        found, workers.events = (workers.events, []) if waits[0] > 3 else ([], workers.events)
        return found

    monkeypatch.setattr(coordinator, "PATIENCE", -1.0)
    monkeypatch.setattr(workers, "wait", wait)
    coordinator.run_workers(workers, Schedule(TASKS), lambda task: None, said.append)
    assert [text for text in said if "no room" in text] == [
        "no worker is ready after -1 s; there may be no room for one (Ctrl-C stops)"
    ]


@pytest.mark.parametrize(("devices", "images"), [(None, 128), ("cpu", 128), ("cpu,cpu", 1)])
def test_every_worker_has_several_units(devices: str | None, images: int, greys: Path, tmp_path: Path) -> None:
    config = RunConfig(
        models=["fake:grey"],
        data=str(greys),
        lenses=[PROFILE],
        execution={"devices": devices, "batch": 4, "runtime": "torch"},
    )
    setup = assemble(config)
    entries = [Entry(index, str(index), "", (40, 48)) for index in range(12)]
    sizes = measured_sizes(setup, jobs_of(setup), entries, {"batch": {"grey": 4}, "shard": 128})
    assert sizes == {"profile/grey": images}


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
    sent, plain_send = list[ShardTask](), Processes.send

    def kill_at_the_second_task(self: Processes, worker: int, task: ShardTask) -> None:
        sent.append(task)
        if len(sent) == 2:
            self._workers[worker][0].kill()
        plain_send(self, worker, task)

    monkeypatch.setattr(Processes, "send", kill_at_the_second_task)
    monkeypatch.setattr(schedule, "LATE", float("inf"))  # no task gets a second worker because this machine is busy
    execution = PLAIN.model_copy(update={"devices": ",".join(["cpu"] * workers)})
    joint = brinell.run("fake:grey", greys, lens=PROFILE, out=tmp_path / "joint", execution=execution, quiet=True)
    assert len(sent) == 7 and len(set(sent)) == 6 and sent.count(sent[1]) == 2  # six shards, and that one again
    assert joint.finished and same(joint, measure(greys, tmp_path / "plain"))
    assert not (tmp_path / "joint/unfinished").exists()
