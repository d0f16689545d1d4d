"""Shared fixtures: the folder of real models and images, and small datasets generated on the fly."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import zipfile

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job; tests interrupt the processes they start
    signal.signal(signal.SIGINT, signal.default_int_handler)

# One thread per operation, here and in the processes that tests start: threads that share a small operation mostly spin.
for _variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_variable] = "1"
os.environ.pop("COLUMNS", None)  # workers of pytest-xdist have it; a console keeps the width that it starts with

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

# The engine reads its number of worker threads from torch on import: two, so that runs have batches in flight at once.
torch.set_num_threads(2)
import brinell.cli.console  # before a test sets another width
import brinell.engine.threads  # noqa: F401

torch.set_num_threads(1)
cv2.setNumThreads(1)

from brinell.config.execution import Execution
from brinell.engine import tuning
from viewing import chromium, tab, viewed_run, viewer  # noqa: F401  (fixtures)

ASSETS = Path(os.environ.get("BRINELL_ASSETS", Path(__file__).parents[2] / "shared" / "assets"))

#: plain torch, small batches: nothing to export, nothing to measure
PLAIN = Execution(runtime="torch", batch=16, shard=8)

tuning.SECONDS = 0.01  # batch sizes are still measured, but how well does not matter here


@pytest.fixture(scope="session")
def assets() -> Path:
    """The real networks and photographs that the project is tested with; they are not part of it."""
    if not ASSETS.is_dir():
        pytest.skip(f"needs the folder of real models and images, which is not at {ASSETS} (set BRINELL_ASSETS)")
    return ASSETS


@pytest.fixture(scope="session")
def photographs() -> torch.Tensor:
    """Two photographs that come with scikit-image, as uint8 (2, 3, 224, 224)."""
    from brinell.datasets.sources import open_dataset
    from brinell.models.preprocess import Preprocess

    pytest.importorskip("skimage", reason="needs the photographs of scikit-image")
    photos = open_dataset("demo-photos")
    model_input = Preprocess(224, 224).model_input
    return torch.stack([model_input(photos[index].image) for index in (20, 21, 22)])


@pytest.fixture(scope="session", autouse=True)
def cache_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep the user's own cache out of the tests; ONNX exports are shared by the tests of one process."""
    os.environ["XDG_CACHE_HOME"] = str(tmp_path_factory.mktemp("cache"))
    os.environ.pop("BRINELL_CACHE", None)


@pytest.fixture
def answer_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a test its own cache of the answers of services."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def greys(tmp_path: Path) -> Path:
    """Twelve small images of known mean grey in the class folder `light`, for the fake model."""
    return write_greys(tmp_path / "greys")


@pytest.fixture(scope="session")
def shared_greys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same images for runs that several tests share. Do not write to them."""
    return write_greys(tmp_path_factory.mktemp("shared") / "greys")


@pytest.fixture(scope="session")
def unlabelled(shared_greys: Path) -> dict[str, Any]:
    """Those images, with a model's own answers as the truth."""
    return {"source": shared_greys, "labels": "prediction"}


def write_greys(folder: Path) -> Path:
    generator = np.random.default_rng(0)
    (folder / "light").mkdir(parents=True)
    for index in range(12):
        pixels = 80 + 12 * index + generator.integers(-20, 21, (40, 48, 3))
        Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(folder / "light" / f"{index:02d}.png")
    return folder


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--screenshots", action="store_true", help="write the pictures of the viewer in docs/images")


# ---- a note on the slow tests that were left out ----

SLOW = pytest.StashKey[int]()


def pytest_deselected(items: list[pytest.Item]) -> None:
    slow = sum(item.get_closest_marker("slow") is not None for item in items)
    if items:
        stash = items[0].config.stash
        stash[SLOW] = stash.get(SLOW, 0) + slow


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Pass the count from a worker of pytest-xdist to the process that prints the summary."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["slow"] = session.config.stash.get(SLOW, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[SLOW] = getattr(node, "workeroutput", {}).get("slow", 0)  # every worker collects the same tests


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if slow := config.stash.get(SLOW, 0):
        terminalreporter.write_line(f"{slow} slow tests deselected; `make test-all` runs them")


NUDENET = "nudenet==3.4.2"


@pytest.fixture(scope="session")
def nudenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ONNX file in NudeNet's package, a YOLOv8 with its exporter's metadata; downloaded and not installed."""
    folder = tmp_path_factory.mktemp("nudenet")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), NUDENET]
    done = subprocess.run(pip, capture_output=True, text=True, check=False, timeout=120)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        pytest.skip(f"needs the package {NUDENET} from the package index: {done.stderr.strip()[-200:]}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        return Path(wheel.extract("nudenet/320n.onnx", folder))


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the interpreter run Triton's own functions, such as `tl.sum`, too, although Triton is loaded already."""
    triton = pytest.importorskip("triton", reason="needs Triton, which comes with torch for CUDA")
    interpreter = importlib.import_module("triton.runtime.interpreter")
    made: dict[int, object] = {}  # the interpreter recognises some functions by their identity
    for module in (triton.language.standard, triton.language):
        for name, value in vars(module).items():
            if isinstance(value, triton.JITFunction):
                found = made.setdefault(id(value), interpreter.InterpretedFunction(value.fn))
                monkeypatch.setattr(module, name, found)


@pytest.fixture
def interpreted(library: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Load a module of `brinell.kernels.cuda` whose kernels run on a CPU, in Triton's interpreter."""
    pytest.importorskip("triton", reason="needs Triton, which comes with torch for CUDA")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    for called in ("hashed_draws", "bilinear"):  # by kernels
        importlib.reload(importlib.import_module(f"brinell.kernels.cuda.{called}"))
    return lambda name: importlib.reload(importlib.import_module(f"brinell.kernels.cuda.{name}"))
