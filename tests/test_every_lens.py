"""Every lens on every kind of model: it runs, or refuses in one line, as the table of docs/models.md says."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import brinell
import shapes
from brinell.errors import BrinellError
from brinell.lenses.lens import LENSES
from brinell.models.export import export
from brinell.serve.server import Server
from conftest import PLAIN
from services import listening
from test_chat import completion, vllm
from test_detectors import Spots, wrapped
from test_embeddings import COLOURS, open_means, pictures

pytestmark = pytest.mark.usefixtures("answer_cache")
DOCS = Path(__file__).parents[1] / "docs" / "models.md"
PAIRS = r"(?P<original>[^/_]+)(_(?P<variant>\w+))?\.png$"
OPTIONS: dict[str, dict[str, Any]] = {
    "profile": {"operators": ["fade_black"], "levels": 2},
    "knob": {"operators": ["brightness"], "points": 4},
    "geometry": {"operators": ["translation"], "methods": ["grid"], "grid_motions": 9},
    "manifool": {"operators": ["translation"], "methods": ["manifool"], "max_steps": 2, "targets": 1},
    "fragility": {"operators": ["windows"], "sizes": [0.75], "stride": 4},
    "highlights": {"operators": ["highlight"], "cells": 2, "sigmas": [4]},
    "photographs": {},
}
TITLES = {"manifool": "geometry with ManiFool"}
Opened = tuple[Any, Path]  # a model, or its source, and data with pairs of photographs
Kind = Callable[[Path], Any]  # a context manager of what it opens in a folder


def colours(root: Path) -> Path:
    """Three pictures, each photographed twice, in a folder for each class."""
    for name, colour in COLOURS.items():
        (root / name).mkdir(parents=True)
        for number, suffix in enumerate(("", "_night")):
            pixels = np.clip(np.full((24, 32, 3), colour) - 15 * number, 0, 255).astype(np.uint8)
            pixels[:8] //= 2
            Image.fromarray(pixels).save(root / name / f"{name}{suffix}.png")
    return root


def colour_net() -> nn.Module:
    """The mean colour decides, by a convolution: blue, green and red, as folders are sorted."""
    net = nn.Sequential(nn.Conv2d(3, 3, 1, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    nn.init.zeros_(net[0].weight)  # type: ignore[arg-type]
    for output, channel in enumerate((2, 1, 0)):
        net[0].weight.data[output, channel] = 8.0  # type: ignore[index, union-attr]
    return net


@cache
def exported() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        export(colour_net(), torch.zeros(2, 3, 16, 16), Path(folder) / "net.onnx", "net")
        return (Path(folder) / "net.onnx").read_bytes()


@contextmanager
def classifier(root: Path) -> Iterator[Opened]:
    yield brinell.wrap(colour_net(), size=16, classes=sorted(COLOURS), name="net", execution=PLAIN), colours(root / "data")


@contextmanager
def onnx(root: Path) -> Iterator[Opened]:
    (root / "net.onnx").write_bytes(exported())
    (root / "classes.txt").write_text("\n".join(sorted(COLOURS)))
    yield f"onnx:{root / 'net.onnx'}?classes={root / 'classes.txt'}", colours(root / "data")


@contextmanager
def quantised(root: Path) -> Iterator[Opened]:
    with onnx(root) as (source, data):
        yield f"{source}&quantise=int8", data


@contextmanager
def detector(root: Path) -> Iterator[Opened]:
    (root / "photos").mkdir()
    for name, grey in (("a", 250), ("a_night", 200), ("b", 240), ("b_night", 60)):
        array = np.full((48, 64, 3), 20, np.uint8)
        array[24:36, 16:32] = grey
        Image.fromarray(array).save(root / "photos" / f"{name}.png")
    yield wrapped(Spots()), root / "photos"


@contextmanager
def segmenter(root: Path) -> Iterator[Opened]:
    data = shapes.folder(root / "shapes", 4)
    for kind in ("images", "masks"):
        for number, name in enumerate(("a", "a_night", "b", "b_night")):
            (data / kind / f"{number}.png").rename(data / kind / f"{name}.png")
    yield shapes.segmenter(), data


@contextmanager
def with_gallery(root: Path) -> Iterator[Opened]:
    yield open_means(gallery=str(pictures(root / "gallery", 2, 0))), colours(root / "data")


@contextmanager
def embedder(root: Path) -> Iterator[Opened]:
    yield open_means(), colours(root / "data")


@contextmanager
def service(root: Path) -> Iterator[Opened]:
    model = brinell.wrap(colour_net(), size=16, classes=sorted(COLOURS), name="net", execution=PLAIN)
    (root / "classes.txt").write_text("\n".join(sorted(COLOURS)))
    with Server(model, port=0) as server:
        server.start()
        yield f"{server.url}#classes={root / 'classes.txt'}", colours(root / "data")


@contextmanager
def chat(root: Path) -> Iterator[Opened]:
    (root / "classes.txt").write_text("light\ndark\n")
    with listening(vllm) as server:
        url = server.url.removesuffix("/predict")
        yield f"chat:{url}/v1?model=tiny&classes={root / 'classes.txt'}&size=16&resize=stretch", greys(root)


@contextmanager
def answers(root: Path) -> Iterator[Opened]:
    (root / "question.txt").write_text("What is this?")
    with listening(lambda handler, body: completion("a wall")) as server:
        url = server.url.removesuffix("/predict")
        yield f"chat:{url}/v1?model=tiny&task=answer&question={root / 'question.txt'}&size=16&resize=stretch", greys(root)


def greys(root: Path) -> Path:
    (root / "photos" / "light").mkdir(parents=True)
    for name, grey in (("a", 200), ("a_night", 120), ("b", 180), ("b_night", 60)):
        Image.fromarray(np.full((24, 32, 3), grey, np.uint8)).save(root / "photos" / "light" / f"{name}.png")
    return root / "photos"


KINDS: dict[str, Kind] = {
    "torch classifier": classifier,
    "ONNX classifier": onnx,
    "quantised copy": quantised,
    "detector": detector,
    "segmenter": segmenter,
    "embedder with a gallery": with_gallery,
    "embedder": embedder,
    "service": service,
    "chat model": chat,
    "chat model, free answers": answers,
}


def documented() -> dict[tuple[str, str], str]:
    """The table: for a kind of model and a lens "yes", or a footnote's text."""
    text = DOCS.read_text()
    section = text.partition("## Which lens for which model")[2].partition("\n## ")[0]
    notes = dict(re.findall(r"^(\d)\. `(.+)`$", section, re.M))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")]
    heads, _, *body = rows
    return {
        (row[0], lens): cell if cell == "yes" else notes[cell.removeprefix("no (").rstrip(")")]
        for row in body
        for lens, cell in zip(heads[1:], row[1:], strict=True)
    }


@pytest.mark.slow
@pytest.mark.parametrize("lens", OPTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_lens_runs_or_refuses_as_documented(kind: str, lens: str, tmp_path: Path) -> None:
    expected = documented()[kind, TITLES.get(lens, lens)]
    with KINDS[kind](tmp_path) as (model, folder):
        data: dict[str, Any] = {"source": str(folder)}
        if kind in ("detector", "chat model, free answers") or lens == "photographs":
            data["labels"] = "prediction"
        if lens == "photographs":
            data["pattern"] = PAIRS

        def run() -> brinell.Run:
            options = {"name": "geometry" if lens == "manifool" else lens, **OPTIONS[lens]}
            criterion = {"criterion": "same_answer"} if kind.endswith("free answers") else {}
            given: dict[str, Any] = {"budget": 1.0, "out": tmp_path / "run", "execution": PLAIN, "quiet": True}
            return brinell.run(model, data, lens={**options, **criterion}, **given)

        if expected == "yes":
            found = run()
            assert found.rows("select count(*) from rows").fetchall()[0][0] > 0
            assert found.summary() is not None and "<html" in Path(found.report()).read_text()
            return
        with pytest.raises(BrinellError) as refusal:
            run()
    message = str(refusal.value)
    assert "\n" not in message
    pattern = re.escape(expected).replace("MODEL", r"\S+").replace("…", ".*")
    assert re.fullmatch(pattern, message), message


def test_every_lens_is_in_the_table() -> None:
    own = {lens.name for lens in LENSES.values() if lens.package.startswith("brinell.lenses.")}
    assert own == {lens for lens in OPTIONS if lens != "manifool"}
    assert {kind for kind, _ in documented()} == {*KINDS, "zero-shot"}, "tests/zoo runs zero-shot models"
