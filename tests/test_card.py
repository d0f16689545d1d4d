"""Cards of models: pictures that open anywhere, Markdown for a model card, and names that stay text."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from PIL import Image

import brinell
from brinell.cli.main import main
from brinell.pictures import encode_jpeg
from brinell.report.card_files import CardFacts, _wrap, draw_card, file_name
from brinell.report.cards import Card, CardHardness
from brinell.report.section import Picture
from brinell.report.show import to_source
from brinell.runs.hardness import Hardness
from brinell.runs.statistics import Estimate
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


OVERLAPS = """() => {
    const boxes = [...document.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
    const crossed = (a, b) => a.left < b.right && b.left < a.right && a.top + 4 < b.bottom && b.top + 4 < a.bottom;
    const frame = document.documentElement.getBoundingClientRect();
    return boxes.flatMap(([name, box], number) => box.right > frame.right ? [name]
        : boxes.slice(number + 1).filter(([, other]) => crossed(box, other)).map(([other]) => `${name} | ${other}`));
}"""


def test_texts_don_t_overlap(chromium: Any, tmp_path: Path) -> None:
    """Also headings and answers that are longer than their pictures are wide."""
    source = to_source(encode_jpeg(Image.new("RGB", (60, 60), "red")))
    heading, answer = "global blur, 1 pass of a 5×5 blur, 96% of pixels", "American Staffordshire terrier, 55% confident"
    picture = Picture(source, heading, correct=False, clean_source=source, before=answer, after=answer)
    estimate = Estimate(75.0, 61.0, 85.0)
    hardness = [CardHardness("profile", Hardness("net", "changes of the scene", estimate, 16, {}))]
    verdict = "Right on 88% [64–97%] of 16 clean images. It gives way most easily to global blur among degradations."
    card = Card("net", verdict, Estimate(0.88, 0.64, 0.97), 16, hardness, [picture] * 3, ["Does it survive?"])
    (tmp_path / "card.svg").write_text(draw_card(card, CardFacts("photos", 16, "2026-11-18", "1.0", False)))
    page = chromium.new_page()
    page.goto((tmp_path / "card.svg").as_uri())
    assert page.locator("text").count() > 20 and page.evaluate(OVERLAPS) == []
    page.close()


def test_texts_and_file_names_fit() -> None:
    lines = _wrap("one two three " * 20 + "x" * 300, 14, 200)
    assert all(len(line) < 40 for line in lines) and lines[-1].endswith("…")
    assert _wrap("one two three " * 20, 14, 200, most=2)[1].endswith(" …") and len(_wrap("one two", 14, 200, most=2)) == 1
    assert file_name("org/model:v1") == "org-model-v1" and file_name("///") == "model"
