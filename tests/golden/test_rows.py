"""Recorded runs of every lens and every search: they open, and running them again gives the same rows, bit by bit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import brinell
from conftest import ASSETS

RUNS = Path(__file__).parent / "runs"
RECORDER = Path(__file__).parent / "record.py"
NAMES = sorted(path.name for path in RUNS.iterdir() if path.is_dir())


@pytest.mark.parametrize("name", NAMES)
def test_recorded_runs_open(name: str) -> None:
    found = brinell.Run(RUNS / name).to_json()
    assert found["version"] == 1 and all(lens["verdicts"] for lens in found["lenses"].values())


def test_recorded_runs_name_no_machine() -> None:
    folder = str(Path(__file__).resolve().parents[3])
    assert [name for name in NAMES if f"{folder}/" in (RUNS / name / "manifest.json").read_text()] == []


def test_another_format_is_refused(tmp_path: Path) -> None:
    shutil.copytree(RUNS / "cifar-profile", tmp_path / "run")
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    (tmp_path / "run" / "manifest.json").write_text(json.dumps(manifest | {"format": 2}))
    with pytest.raises(brinell.RunError, match="has format 2, and this version of brinell reads format 1"):
        brinell.Run(tmp_path / "run")


@pytest.mark.slow
def test_rows_are_as_recorded() -> None:
    """In a process of its own, with one thread."""
    same = "import json, record; print(json.dumps(record.machine()))"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    here = subprocess.run(
        [sys.executable, "-c", same], cwd=RECORDER.parent, env=environment, check=True, capture_output=True, text=True
    )
    if json.loads(here.stdout) != json.loads((RUNS / "machine.json").read_text()):
        pytest.skip("recorded on another processor, or with other libraries, which round differently")
    names = NAMES if ASSETS.is_dir() else [name for name in NAMES if name.startswith("imagenet")]
    command = [sys.executable, str(RECORDER), "--check", str(RUNS), *names]
    checked = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
