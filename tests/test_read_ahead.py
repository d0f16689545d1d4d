"""On an accelerator, processes read the images while the model is opened: the same samples and inputs as by threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile
from torch import nn

import brinell
from brinell.api import open_setup
from brinell.cli import execute as commands
from brinell.cli.interrupt import Interrupted
from brinell.datasets.files import Files
from brinell.datasets.sources import open_dataset
from brinell.engine import setup as assembling
from brinell.engine.progress import Reporter, Silent
from brinell.engine.reading_ahead import ahead as read_ahead
from brinell.engine.reading_ahead import processes
from brinell.engine.reading_ahead.ahead import ReadAhead, start_reading
from brinell.engine.reading_ahead.processes import Answer, ImageProcesses, Process, process_count, start_early
from brinell.engine.ready import Ready
from brinell.engine.runner import execute
from brinell.engine.setup import RunSetup
from brinell.engine.survey import Survey
from brinell.errors import ConfigError, ModelError, RunError
from brinell.models.preprocess import Preprocess
from brinell.run_config import RunConfig, load_config

PRE = Preprocess(24, 20, short_side=26, interpolation="bilinear")
COUNT = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of several sizes and kinds, of which one can't be read."""
    root, generator = tmp_path_factory.mktemp("images"), np.random.default_rng(0)
    for number in range(COUNT):
        (root / f"class-{number % 2}").mkdir(exist_ok=True)
        sides = generator.integers(20, 60, 2)
        pixels = generator.integers(0, 256, (*sides, 3), dtype=np.uint8)
        picture = Image.fromarray(pixels).convert("L" if number % 7 == 3 else "RGB")
        picture.save(root / f"class-{number % 2}" / f"{number:03d}.{'png' if number % 5 == 0 else 'jpg'}")
    (root / "class-1" / "099.jpg").write_bytes(b"no image")
    return root


@pytest.fixture
def dataset(folder: Path) -> Files:
    found = open_dataset(str(folder))
    assert isinstance(found, Files)
    return found


def surveyed(dataset: Files, indices: list[int]) -> tuple[Survey, Ready]:
    ready = Ready(PRE, 1 << 20)
    return Survey(dataset, indices, ThreadPoolExecutor(2), strict=False, keep=ready.add), ready


def same(ahead: ReadAhead, dataset: Files, indices: list[int]) -> None:
    survey, ready = surveyed(dataset, indices)
    counts: list[int] = []
    found = ahead.finish(survey, counts.append)
    assert found is not None
    assert found[0].equals(survey.read(indices, lambda done: None))
    assert sum(counts) == len(indices)
    own, others = found[1].inputs(PRE), ready.inputs(PRE)
    assert sorted(own) == sorted(others)
    assert len(own) == COUNT
    assert all(torch.equal(own[index], others[index]) for index in own)


def test_processes_read_what_threads_read(dataset: Files) -> None:
    indices = list(reversed(range(len(dataset))))
    ahead = ReadAhead(dataset, indices, ImageProcesses(2))
    ahead.begin(PRE)
    ahead.begin(Preprocess(8, 8))  # of another model: the first one counts
    same(ahead, dataset, indices)
    assert all(one.process.poll() is not None for one in ahead._processes.started)
    assert not ahead._ready.inputs(PRE)  # the run alone holds them
    assert ahead.finish(surveyed(dataset, indices)[0], lambda done: None) is None


@pytest.mark.parametrize("dead", [1, 2], ids=["one", "all"])
def test_a_process_that_dies_loses_no_image(dead: int, dataset: Files) -> None:
    indices = list(range(len(dataset)))
    ahead = ReadAhead(dataset, indices, ImageProcesses(2))
    for one in ahead._processes.started[:dead]:
        os.kill(one.process.pid, signal.SIGKILL)
    ahead.begin(PRE)
    same(ahead, dataset, indices)


def test_no_more_inputs_are_kept_than_there_is_room_for(dataset: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(read_ahead.ROOM, "cuda", 10 * 3 * 24 * 20)
    indices = list(range(len(dataset)))
    ahead = ReadAhead(dataset, indices, ImageProcesses(2))
    ahead.begin(PRE)
    found = ahead.finish(surveyed(dataset, indices)[0], lambda done: None)
    assert found is not None
    assert 10 <= len(found[1].inputs(PRE)) < 30  # what is asked for at the same time may come, too


def test_images_are_read_later_if_no_thread_can_be_started(dataset: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    ahead = ReadAhead(dataset, [0, 1], ImageProcesses(1))
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        ahead.begin(PRE)
    assert ahead.finish(surveyed(dataset, [0, 1])[0], lambda count: None) is None


def test_what_was_read_for_other_images_is_not_used(dataset: Files) -> None:
    ahead = ReadAhead(dataset, [0, 1], ImageProcesses(1))
    ahead.begin(PRE)
    assert ahead.finish(surveyed(dataset, [1, 0])[0], lambda done: None) is None
    never_begun = ReadAhead(dataset, [0, 1], ImageProcesses(1))
    assert never_begun.finish(surveyed(dataset, [0, 1])[0], lambda done: None) is None


def test_what_a_process_cant_read_is_read_again(dataset: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have lacked memory, for example, which the run does not."""
    plain = ImageProcesses.read

    def read(self: ImageProcesses, some: Files, indices: Sequence[int], pre: Preprocess | None) -> Answer | None:
        found = plain(self, some, indices, pre)
        assert found is not None
        lost = {"index": 0, "name": "lost", "problem": "out of memory"}
        return Answer([lost for _ in found.records], [], b"")

    monkeypatch.setattr(ImageProcesses, "read", read)
    indices = list(range(len(dataset)))
    ahead = ReadAhead(dataset, indices, ImageProcesses(1))
    ahead.begin(PRE)
    same(ahead, dataset, indices)


def test_a_path_that_python_ignores_does_no_harm(dataset: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, Path("somewhere")])
    images = ImageProcesses(1)
    assert images.read(dataset, [0], None) is not None
    images.close()


@pytest.fixture
def on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "DEVICES", {"cpu"})
    monkeypatch.setattr(read_ahead, "FEWEST", 10)
    monkeypatch.setattr(processes, "FEWEST", 10)
    monkeypatch.setattr(processes, "SPARE", 0)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})


def checkpoint(folder: Path) -> str:
    torch.manual_seed(0)
    module = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 2))
    torch.save(module, folder / "net.pt")
    (folder / "classes.txt").write_text("class-0\nclass-1\n")
    return f"torch:{folder / 'net.pt'}?size=24&classes={folder / 'classes.txt'}"


@pytest.mark.usefixtures("on_a_cpu")
def test_a_run_has_the_same_rows(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    plain_start = processes.start_process

    def start() -> Process:
        started.append(1)
        return plain_start()

    monkeypatch.setattr(processes, "start_process", start)
    lens = {"name": "profile", "operators": ["fade_white"], "levels": 3}
    model = checkpoint(tmp_path)
    execution = brinell.Execution(runtime="torch", batch=4, trust=True)
    run = brinell.run(model, folder, lens=lens, out=tmp_path / "run", execution=execution, quiet=True)
    assert len(started) == 2
    monkeypatch.setattr(read_ahead, "DEVICES", set())
    plain = brinell.run(model, folder, lens=lens, out=tmp_path / "plain", execution=execution, quiet=True)
    assert len(started) == 2
    for table in ("rows", "samples"):
        assert run.query(f"select * from {table} order by all") == plain.query(f"select * from {table} order by all")


@pytest.mark.usefixtures("on_a_cpu")
def test_processes_end_if_the_model_cant_be_opened(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Process] = []
    plain_start = processes.start_process

    def start() -> Process:
        started.append(plain_start())
        return started[-1]

    monkeypatch.setattr(processes, "start_process", start)
    (tmp_path / "net.pt").write_bytes(b"no network")
    with pytest.raises(ModelError):
        brinell.run(f"torch:{tmp_path / 'net.pt'}?size=24", folder, out=tmp_path / "run", quiet=True)
    assert len(started) == 2
    assert all(one.process.poll() is not None for one in started)


@pytest.mark.usefixtures("on_a_cpu")
def test_processes_start_only_where_they_help(dataset: Files, tmp_path: Path) -> None:
    indices = list(range(len(dataset)))
    for execution in (
        brinell.Execution(strict=True),
        brinell.Execution(workers=2),
        brinell.Execution(part="1/2"),
        brinell.Execution(devices="cpu,cpu"),
    ):
        assert start_reading(dataset, indices, execution) is None
    assert start_reading(dataset, indices[:9], brinell.Execution()) is None
    masked = replace(dataset, masks=[None] * len(dataset))
    assert start_reading(masked, indices, brinell.Execution()) is None


@pytest.mark.usefixtures("on_a_cpu")
def test_no_processes_start_where_python_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that Python is packed into would start itself, and that again."""
    assert process_count(brinell.Execution()) == 2
    with monkeypatch.context() as packed:
        packed.setattr(sys, "frozen", True, raising=False)
        assert process_count(brinell.Execution()) == 0
    monkeypatch.setattr(sys, "executable", "")
    assert process_count(brinell.Execution()) == 0


def test_a_container_has_as_many_processes_as_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)))
    monkeypatch.setattr(processes, "QUOTA", tmp_path / "cpu.max")
    for content, count in {"": 14, "max 100000": 14, "850000 100000": 6, "200000 100000": 0}.items():
        (tmp_path / "cpu.max").write_text(content)
        assert process_count(brinell.Execution()) == count
    (tmp_path / "cpu.max").unlink()
    assert process_count(brinell.Execution()) == 14


@pytest.mark.usefixtures("on_a_cpu")
def test_a_run_does_without_processes_that_cannot_be_started(dataset: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Process] = []
    plain_start = processes.start_process

    def start() -> Process:
        if started:
            raise BlockingIOError("Resource temporarily unavailable")
        started.append(plain_start())
        return started[-1]

    monkeypatch.setattr(processes, "start_process", start)
    assert start_reading(dataset, list(range(len(dataset))), brinell.Execution()) is None
    assert [one.process.poll() is not None for one in started] == [True]


def test_a_process_ends_with_the_run(tmp_path: Path) -> None:
    """Nothing is left if the run is killed."""
    one = processes.start_process()
    one.connection.close()
    until = time.monotonic() + 60
    while one.process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    assert one.process.poll() == 0


def started_early(config: RunConfig) -> int:
    """Return the number of processes that are started before torch is imported, and end them."""
    started = start_early(config)
    if started is None:
        return 0
    started.close()
    return started.count


@pytest.mark.usefixtures("on_a_cpu")
def test_processes_start_early_only_if_a_run_will_probably_want_them(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def config(device: str = "cuda:1", source: Path = folder, limit: int | None = None, **more: Any) -> RunConfig:
        content = {"models": ["fake:grey"], "data": {"source": str(source), "limit": limit}, "lenses": ["profile"]}
        return load_config({**content, "execution": {"device": device, **more}})

    assert started_early(config()) == 2
    assert started_early(config(limit=10)) == 2
    monkeypatch.setenv("HOME", str(folder.parent))
    assert started_early(config(source=Path("~", folder.name))) == 2
    few = tmp_path / "few"
    few.mkdir()
    (few / "0.jpg").touch()
    for other in (
        config(device="cpu"),
        config(limit=9),
        config(source=few),
        config(source=tmp_path / "none"),
        config(workers=1),
        config(strict=True),
    ):
        assert started_early(other) == 0


def test_processes_start_early_without_torch() -> None:
    """While they import it, so does the run."""
    code = "import sys, brinell.engine.reading_ahead.processes; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.usefixtures("on_a_cpu")
def test_processes_that_are_not_wanted_end(dataset: Files) -> None:
    started = ImageProcesses(2)
    assert start_reading(dataset, [0, 1], brinell.Execution(), started) is None
    assert all(one.process.poll() is not None for one in started.started)
    started = ImageProcesses(2)
    ahead = start_reading(dataset, list(range(len(dataset))), brinell.Execution(), started)
    assert ahead is not None
    ahead.begin(PRE)
    same(ahead, dataset, list(range(len(dataset))))
    assert all(one.process.poll() is not None for one in started.started)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Process]:
    """The processes that a test starts."""
    found: list[Process] = []
    plain_start = processes.start_process

    def start() -> Process:
        found.append(plain_start())
        return found[-1]

    monkeypatch.setattr(processes, "start_process", start)
    return found


@pytest.mark.usefixtures("on_a_cpu")
def test_nothing_is_left_of_a_run_that_is_refused(folder: Path, tmp_path: Path, started: list[Process]) -> None:
    """Before it asks for the images."""
    lens, model = {"name": "profile", "operators": ["fade_white"], "levels": 2}, checkpoint(tmp_path)
    execution = brinell.Execution(runtime="torch", batch=4, trust=True)
    brinell.run(model, folder, lens=lens, out=tmp_path / "run", execution=execution, quiet=True)
    with pytest.raises(RunError):
        brinell.run(model, folder, lens={**lens, "levels": 3}, out=tmp_path / "run", execution=execution, quiet=True)
    with pytest.raises(ConfigError):
        other = {**lens, "criterion": "target_class_missing(1)"}
        brinell.run(model, folder, lens=other, out=tmp_path / "other", execution=execution, quiet=True)
    assert len(started) == 6
    assert all(one.process.poll() is not None for one in started)
    assert all(one.connection.closed for one in started)


@pytest.mark.usefixtures("on_a_cpu")
@pytest.mark.parametrize("early", [True, False], ids=["early", "later"])
def test_nothing_is_left_of_a_run_that_is_declined(
    early: bool, folder: Path, tmp_path: Path, started: list[Process], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whoever is asked whether it may take so long."""

    def decline(setup: RunSetup, progress: Reporter) -> None:
        assert setup.ahead is not None
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "start_early", lambda config: ImageProcesses(2) if early else None)
    content = {"models": [checkpoint(tmp_path)], "data": str(folder), "lenses": ["profile"], "out": str(tmp_path / "run")}
    config = load_config({**content, "execution": {"runtime": "torch", "batch": 4, "trust": True}})
    with pytest.raises(Interrupted, match="before anything was stored"):
        commands.execute(config, decline)
    assert len(started) == 2
    assert all(one.process.poll() is not None and one.connection.closed for one in started)


@pytest.mark.usefixtures("on_a_cpu")
def test_images_are_read_for_a_model_that_is_given(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Preprocess] = []
    plain = ReadAhead.begin

    def begin(self: ReadAhead, preprocess: Preprocess) -> None:
        begun.append(preprocess)
        plain(self, preprocess)

    monkeypatch.setattr(ReadAhead, "begin", begin)
    module = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 2))
    model = brinell.wrap(module, size=24, classes=["class-0", "class-1"], execution=brinell.Execution(runtime="torch"))
    lens = {"name": "profile", "operators": ["fade_white"], "levels": 1}
    brinell.run(model, folder, lens=lens, out=tmp_path / "run", execution=brinell.Execution(batch=4), quiet=True)
    assert begun == [model.preprocess]


@pytest.mark.usefixtures("on_a_cpu")
def test_images_are_read_for_models_of_every_kind(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As soon as it is open, if it doesn't say earlier how its inputs are made."""
    begun: list[Preprocess] = []
    monkeypatch.setattr(ReadAhead, "begin", lambda self, preprocess: begun.append(preprocess))
    model = brinell.open_model("fake:grey", brinell.Execution(runtime="torch"))
    monkeypatch.setattr(assembling, "open_model", lambda options, execution: model)
    with closing(open_setup("fake:grey", folder, {"out": tmp_path / "run"}, brinell.Execution())):
        assert begun == [model.preprocess]


def test_processes_have_the_settings_of_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A script may allow truncated images, which are read then, whoever reads them."""
    (tmp_path / "class-0").mkdir()
    file = tmp_path / "class-0" / "0.jpg"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 60, 3), dtype=np.uint8)).save(file)
    file.write_bytes(file.read_bytes()[:-400])
    dataset = open_dataset(str(tmp_path))
    assert isinstance(dataset, Files)

    def problems() -> list[str | None]:
        ahead = ReadAhead(dataset, [0], ImageProcesses(1))
        ahead.begin(PRE)
        found = ahead.finish(surveyed(dataset, [0])[0], lambda done: None)
        assert found is not None
        return found[0]["problem"].to_pylist()

    assert problems() != [None]
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    assert problems() == [None]


@pytest.mark.usefixtures("on_a_cpu")
def test_what_could_not_be_read_ahead_is_read_again(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*given: Any) -> Any:
        raise ValueError("it is broken")

    monkeypatch.setattr(ImageProcesses, "read", fail)
    reader = Listening()
    execution = brinell.Execution(runtime="torch", batch=4, trust=True)
    lens = {"name": "profile", "operators": ["fade_white"], "levels": 1}
    options = {"lens": lens, "out": tmp_path / "run"}
    with closing(open_setup(checkpoint(tmp_path), folder, options, execution)) as setup:
        execute(setup, reader)
    assert "Reading images ahead failed, so they are read again: it is broken" in caplog.text
    assert [stage for stage in reader.stages if stage[0] == "reading images"] == [
        ("reading images", COUNT + 1, 0),
        ("reading images", COUNT + 1, COUNT + 1),
    ]


class Listening(Silent):
    """Notes stages, their totals, and how far they went."""

    def __init__(self) -> None:
        self.stages: list[tuple[str, int, int]] = []

    def stage(self, what: str, total: int, unit: str, left: Any = None) -> Any:
        """Start a stage."""
        self.stages.append((what, total, 0))
        place = len(self.stages) - 1

        def advance(done: int) -> None:
            self.stages[place] = (what, total, self.stages[place][2] + done)

        return advance
