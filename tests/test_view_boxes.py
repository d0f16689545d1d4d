"""Boxes of a real detector in the viewer: live, in the sequences of Explore, and in a bundle."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

import brinell
from brinell.config.execution import Execution
from brinell.marks import STYLES
from brinell.viewer.names import escape
from brinell.viewer.open import bundle_runs, open_viewer
from brinell.viewer.server import Viewer, static_files
from test_real_detectors import DETECTORS, detector_source
from viewing import Tab, wait_until

pytestmark = pytest.mark.slow
FOG, MODEL = "white_fog:published", DETECTORS[0]


@pytest.fixture(scope="module")
def run(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> brinell.Run:
    """A detector on two photographs."""
    return brinell.run(
        detector_source(assets, MODEL),
        {"source": str(assets / "images" / "coco_val_128" / "instances.json"), "limit": 2},
        lens=[{"name": "profile", "operators": ["white_fog"], "levels": 8}, {"name": "knob", "operators": ["rotation"]}],
        out=tmp_path_factory.mktemp("detectors") / "coco",
        execution=Execution(batch=8, shard=8),
        quiet=True,
    )


@pytest.fixture(scope="module")
def viewer(run: brinell.Run) -> Iterator[Viewer]:
    with open_viewer([run.folder]) as opened:
        yield opened.start()


def ask(viewer: Viewer, *parts: str, post: dict[str, Any] | None = None) -> Any:
    address = f"{viewer.url}api/" + "/".join(escape(part) for part in parts)
    body = None if post is None else json.dumps(post).encode()
    with urlopen(Request(address, data=body, headers={"X-Brinell": "1"})) as response:
        return json.loads(response.read())


def detected(run: brinell.Run, assets: Path, image: str) -> list[str]:
    """Return what the detector itself finds in a clean image, best first."""
    model = brinell.open_model(detector_source(assets, MODEL))
    assert model.detector is not None and model.classes is not None
    dataset = brinell.open_dataset(assets / "images" / "coco_val_128" / "instances.json")
    sample = next(dataset[index] for index in range(2) if dataset[index].name == run.image_names[image])
    _, found = model.answer(model.preprocess.model_input(sample.image)[None])
    assert found is not None
    return [
        f"{model.classes.short_name(label)} {score:.2f}"
        for label, score in zip(found.labels[0].tolist(), found.scores[0].tolist(), strict=True)
        if label >= 0 and score >= model.detector.score_threshold
    ]


def test_live_boxes_are_those_of_the_detector_and_of_the_rows(viewer: Viewer, run: brinell.Run, assets: Path) -> None:
    image = next(image for image, name in run.image_names.items() if "285" in name)  # a bear
    photo = ask(viewer, "live", "original", post={"run": "coco", "image": image})["photo"]
    request = {"photo": photo, "change": FOG, "parameters": [0], "axis": 0, "models": [MODEL]}
    (found,) = ask(viewer, "live", "sweep", post=request)["models"]
    assert sorted(mark["text"] for mark in found["clean_marks"]) == sorted(detected(run, assets, image))
    assert found["marks"][0] == found["clean_marks"], "nothing has changed at level 0"
    kinds = {mark["kind"] for marks in found["marks"] for mark in marks}
    assert kinds <= set(STYLES) and kinds & {"lost", "weak", "changed"}, "the bear is lost in the fog"
    for level in (3, 8):
        stored = ask(viewer, "runs", "coco", "boxes", MODEL, "profile", FOG, image, "clean", f"{level}.json")
        assert stored == {"clean": found["clean_marks"], "changed": found["marks"][level]}


def test_pages_draw_boxes_over_pictures(chromium: Any, viewer: Viewer, run: brinell.Run) -> None:
    image = next(image for image, name in run.image_names.items() if "285" in name)
    context = chromium.new_context(viewport={"width": 1400, "height": 900})
    tab = Tab(context.new_page(), viewer.url.rstrip("/"))
    addresses = {
        f"#/break?run=coco&image={image}&change={FOG}&at=8": ".stage",
        f"#/break?run=coco&image={image}&change=profile/{FOG}&mode=stored&at=9": ".stage",
        f"#/explore?run=coco&image={image}&col=0&at=9": ".drawer",
    }
    texts = []
    for address, place in addresses.items():
        page = tab.open(address)
        page.wait_for_selector(f"{place} figure:nth-of-type(2) svg.boxes text", state="attached")
        wait_until(page, f"document.querySelectorAll('{place} svg.boxes').length === 2")
        page.wait_for_timeout(500)
        texts.append([each.text_content() for each in page.locator(f"{place} svg.boxes text").all()])
        box = page.locator(f"{place} svg.boxes .edge-line").first
        picture = page.locator(f"{place} .picture img").first.bounding_box()
        stored = ask(viewer, "runs", "coco", "boxes", MODEL, "profile", FOG, image, "clean", "8.json")["clean"][0]
        left = picture["x"] + max(0, stored["box"][0]) * picture["width"]
        assert box.bounding_box()["x"] == pytest.approx(left, abs=3), "the box lies where the detector found it"
    assert texts[0] == texts[1] == texts[2] and any("bear" in text for text in texts[0])
    page.locator(".drawer").get_by_label("Boxes").first.click()
    wait_until(page, "document.querySelectorAll('.drawer svg.boxes').length === 0")
    context.close()
    assert tab.problems == []


def test_a_bundle_has_boxes_too(run: brinell.Run, tmp_path: Path) -> None:
    bundle_runs([run.folder], tmp_path / "site", images=1)
    assert json.loads((tmp_path / "site/api/site.json").read_text())["boxed"] == {"coco": [MODEL]}
    boxes = list((tmp_path / "site/api/runs/coco/boxes").rglob("*.json"))
    pictures = list((tmp_path / "site/api/runs/coco/replays").rglob("*.webp"))
    assert len(boxes) == len(pictures) > 4
    assert all(json.loads(path.read_text())["clean"] for path in boxes)


def test_boxes_look_as_in_reports() -> None:
    style = static_files()["css/app.css"].read_text()
    for kind, own in STYLES.items():
        start = style.index(".mark {" if kind == "found" else f".mark.{kind} {{")
        assert f"--own: {own.colour}" in style[start : start + 80]
