"""Cards of models: pictures that open anywhere, Markdown for a model card, and names that stay text."""

from __future__ import annotations

import io
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml
from PIL import Image

import brinell
from brinell.cli.main import main
from brinell.report.card_files import _wrap, file_name
from conftest import PLAIN

TRICK = "net </text><script>alert(1)</script> [a](http://x) | b"
LENSES = [{"name": "profile", "operators": ["fade_black", "boxes"], "levels": 6}]


@pytest.fixture(scope="module")
def run(shared_greys: Path, tmp_path_factory: pytest.TempPathFactory) -> brinell.Run:
    models = [{"source": "fake:grey:0.4"}, {"source": "fake:grey:0.3", "name": TRICK}]
    out = tmp_path_factory.mktemp("card") / "run"
    return brinell.run(models, shared_greys, lens=LENSES, out=out, execution=PLAIN, quiet=True)


@pytest.fixture(scope="module")
def files(run: brinell.Run) -> dict[str, bytes]:
    return {name: run.store.read("cards", name) for name in run.cards()}


def test_each_model_has_three_files(files: dict[str, bytes]) -> None:
    assert len(files) == 6 and {"grey-0.4.svg", "grey-0.4.png", "grey-0.4.md"} < set(files)


def test_the_picture_shows_hardness_and_pairs(run: brinell.Run, files: dict[str, bytes]) -> None:
    root = ElementTree.fromstring(files["grey-0.4.svg"])
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    hardness = run.hardness()["profile"]["grey:0.4"].value
    assert {"grey:0.4", "degradations", f"{hardness.value:.0f}", f"{hardness.low:.0f}–{hardness.high:.0f}"} <= set(texts)
    assert "✓ right" in texts and "✗ wrong" in texts
    pictures = [element.get("href", "") for element in root.iter("{http://www.w3.org/2000/svg}image")]
    assert len(pictures) == 4 and all(source.startswith("data:image/jpeg;base64,") for source in pictures)
    with Image.open(io.BytesIO(files["grey-0.4.png"])) as png:
        assert png.width == 1520 and len(png.convert("RGB").getcolors(1 << 20)) > 50, "letters and pictures are drawn"


def test_the_markdown_has_a_model_index(run: brinell.Run, files: dict[str, bytes]) -> None:
    _, front, body = files["grey-0.4.md"].decode().split("---\n", 2)
    (model,) = yaml.safe_load(front)["model-index"]
    (result,) = model["results"]
    assert model["name"] == "grey:0.4" and result["task"]["type"] == "image-classification"
    accuracy, hardness = result["metrics"]
    share = run.rows("select avg(correct::int) from clean where model = 'grey:0.4'").fetchall()[0][0]
    assert accuracy["value"] == pytest.approx(100 * share, abs=0.1)
    expected = run.hardness()["profile"]["grey:0.4"]
    assert hardness["value"] == pytest.approx(expected.value.value, abs=0.1) and hardness["args"]["lens"] == "profile"
    assert f"| degradations | {expected} | {expected.images} |" in body and "![Hardness of" in body


def test_names_are_text(files: dict[str, bytes]) -> None:
    own = {name.rpartition(".")[2]: data.decode("utf-8", "replace") for name, data in files.items() if "grey" not in name}
    assert "<script>" not in own["svg"] and ElementTree.fromstring(own["svg"].encode()) is not None
    assert yaml.safe_load(own["md"].split("---\n")[1])["model-index"][0]["name"] == TRICK
    body = own["md"].split("---\n", 2)[2]
    assert "<script>" not in body and not re.search(r"(?<!\\)\]\(http", body)


def test_the_command(run: brinell.Run, capsys: pytest.CaptureFixture[str]) -> None:
    main(["card", run.folder, "--model", "grey:0.4"])
    assert capsys.readouterr().out.split() == [
        part for suffix in ("svg", "png", "md") for part in ("card:", f"{run.folder}/cards/grey-0.4.{suffix}")
    ]
    with pytest.raises(brinell.ConfigError, match="this run has no model 'gray'"):
        run.cards(models=["gray"])


def test_texts_and_file_names_fit() -> None:
    lines = _wrap("one two three " * 20 + "x" * 300, 14, 200)
    assert all(len(line) < 40 for line in lines) and lines[-1].endswith("…")
    assert file_name("org/model:v1") == "org-model-v1" and file_name("///") == "model"
