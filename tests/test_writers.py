"""Several processes and one folder: rows of two configs never mix, and a crash leaves no lock."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.parquet as pq
import pytest

import brinell
from brinell.runs import files
from brinell.runs.lock import share_folder
from brinell.runs.store import Store, digest_of
from brinell.runs.tables import run_of
from conftest import PLAIN

SLOW = """
import os, pathlib, time, torch
class Net(torch.nn.Module):
    def forward(self, images):
        if "HANG" in os.environ and pathlib.Path("run/manifest.json").exists():
            time.sleep(600)
        above = (images.mean((1, 2, 3)) - 0.25) * 20
        return torch.stack([above, -above], 1)
"""
LENS = {"name": "profile", "operators": ["noise"], "levels": 3}


def start(folder: Path, seed: int, **variables: str) -> subprocess.Popen[str]:
    (folder / "slow.py").write_text(SLOW)
    given = [
        "run", "--model", "torch:slow.py:Net?size=16", "--data", "greys", "--labels", "index", "--operator", "noise",
        "--levels", "3", "--runtime", "torch", "--batch", "4", "--shard", "4", "--yes", "--seed", str(seed), "--out", "run",
    ]  # fmt: skip
    return subprocess.Popen(
        [sys.executable, "-m", "brinell", *given],
        cwd=folder,
        env={**os.environ, **variables},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    while not path.exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


@pytest.mark.slow
def test_two_configs_that_start_together_do_not_mix(greys: Path, tmp_path: Path) -> None:
    processes = [start(tmp_path, seed) for seed in (0, 1)]
    errors = [process.communicate(timeout=120)[1] for process in processes]
    codes = [process.returncode for process in processes]
    assert sorted(codes) == [0, 2], errors
    assert "another run" in errors[codes.index(2)]
    run = brinell.Run(tmp_path / "run")
    assert run.finished and run.seed == codes.index(0)
    owners = {run_of(pq.read_schema(file).metadata) for file in run.store.unit_files()}
    assert owners == {digest_of(run.manifest)}


@pytest.mark.slow
def test_another_run_may_start_where_one_was_killed_before_it_measured_anything(greys: Path, tmp_path: Path) -> None:
    first = start(tmp_path, 0, HANG="1")
    wait_for(tmp_path / "run" / "manifest.json", first)
    second = start(tmp_path, 1)
    assert "another run has just begun in run (config.seed was 0 and is now 1)" in second.communicate(timeout=60)[1]
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert not Store(tmp_path / "run").measured()
    third = start(tmp_path, 1)
    assert third.communicate(timeout=60)[1] and third.returncode == 0
    assert brinell.Run(tmp_path / "run").seed == 1


def measure(greys: Path, out: Any, **more: Any) -> brinell.Run:
    data = {"source": str(greys), "labels": "index"}
    return brinell.run("fake:grey:0.25", data, lens=LENS, out=out, execution=PLAIN, quiet=True, **more)


def test_processes_of_one_run_share_its_folder(greys: Path, tmp_path: Path) -> None:
    """What several machines need that measure parts of one run."""
    with share_folder(Store(tmp_path / "run"), lambda alone: alone) as alone:
        assert alone is False  # the second answer: from then on, others may come
        assert measure(greys, tmp_path / "run").finished


def test_only_one_process_is_alone(tmp_path: Path) -> None:
    answers: list[bool] = []
    with (
        share_folder(Store(tmp_path / "run"), answers.append),
        share_folder(Store(tmp_path / "run"), answers.append),
    ):
        assert answers == [True, False, False]


def test_at_a_url_what_another_run_began_is_never_replaced(greys: Path) -> None:
    url = "memory://writers/run"
    store = Store(url)
    begun = {"format": 1, "identity": {"config": {"seed": 5}, "models": {}, "data": {}}}
    assert store.create_manifest(begun) and not store.create_manifest(begun)
    with pytest.raises(brinell.BrinellError, match="another run has just begun in memory://writers/run"):
        measure(greys, url)
    store.remove()
    assert measure(greys, url).finished


def test_of_many_that_create_a_file_one_succeeds(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert [store.create(b"%d" % number, "file") for number in range(3)] == [True, False, False]
    assert store.read("file") == b"0" and os.listdir(tmp_path) == ["file"]


def test_a_file_is_created_once_where_there_are_no_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr("os.link", refuse)
    store = Store(tmp_path)
    assert [store.create(data, "x") for data in (b"first", b"second")] == [True, False]
    assert store.read("x") == b"first" and [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_folder_that_another_process_removes_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when one of two processes that measure the same run finishes it, and the other one keeps what it has so far."""
    store, own, removed = Store(tmp_path), Path.replace, list[Path]()

    def replace(path: Path, target: Any) -> Path:
        if not removed:
            removed.append(path.parent)
            shutil.rmtree(path.parent)
        return own(path, target)

    monkeypatch.setattr(Path, "replace", replace)
    store.write(b"content", "unfinished", "file")
    assert removed and store.read("unfinished", "file") == b"content" and store.names("unfinished") == ["file"]


class Flaky:
    """A file system at a URL whose first operations of every kind fail."""

    protocol = ("flaky",)

    def __init__(self, failures: int) -> None:
        self.fs, self.failures = fsspec.filesystem("memory"), failures
        self.left: dict[str, int] = {}

    def invalidate_cache(self) -> None:
        """Forget folders, for which nothing is sent."""

    def __getattr__(self, name: str) -> Any:
        def call(*given: Any, **options: Any) -> Any:
            left = self.left.setdefault(name, self.failures)
            if left > 0:
                self.left[name] = left - 1
                raise ConnectionResetError("connection reset")
            return getattr(self.fs, name)(*given, **options)

        return call


class Lost:
    """A file system at a URL that loses the answer to its first rename."""

    protocol = ("lost",)

    def __init__(self) -> None:
        self.fs, self.lost = fsspec.filesystem("memory"), False

    def mv(self, path: str, target: str) -> None:
        self.fs.mv(path, target)
        if not self.lost:
            self.lost = True
            raise ConnectionResetError("connection reset")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.fs, name)


def test_a_rename_whose_answer_is_lost_has_succeeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PAUSE", 0.001)
    store = Store("memory://lost")
    store.fs = Lost()
    store.write(b"content", "folder", "file")
    assert store.read("folder", "file") == b"content" and store.names("folder") == ["file"]


def test_operations_at_a_url_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PAUSE", 0.001)
    store = Store("memory://flaky")
    store.fs = Flaky(2)
    store.write(b"content", "folder", "file")
    assert store.read("folder", "file") == b"content" and store.exists("folder", "file")
    store.fs = Flaky(99)
    with pytest.raises(brinell.BrinellError, match="can't read memory://flaky/folder/file: connection reset"):
        store.read("folder", "file")
