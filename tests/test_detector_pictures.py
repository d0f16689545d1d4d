"""What people see of a detector: boxes on pictures, and reasons in words."""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torch import Tensor, nn

import brinell
from brinell.cli.main import main
from brinell.criteria.criterion import CAUSES
from brinell.marks import STYLES, Mark, draw_marks, enlarge
from brinell.models.marking import MOST, Marker
from brinell.report.exhibits import read_exhibits
from brinell.report.show import BOXED_SIDE
from brinell.saliency.pairs import read_pairs
from brinell.saliency.sheets import SIDE, draw_boxes
from conftest import PLAIN
from laws.test_detection_criteria import AWAY, HERE, detections
from test_detectors import Spots, spots, wrapped
from test_real_detectors import DETECTORS, detector_source

MARKER = Marker(lambda index: ("sky", "bus", "cat")[index], 0.3, 100, 100)


def kinds(now: Any, before: Any) -> dict[str, str]:
    return {mark.text: mark.kind for mark in MARKER.mark_changed(detections(now), detections(before))}


def test_a_mark_says_what_became_of_an_object() -> None:
    before = [(HERE, 1, 0.9)]
    near = [12.0, 10, 52, 50]
    assert kinds([(near, 1, 0.8)], before) == {"bus 0.80": "found"}
    assert kinds([(near, 2, 0.8)], before) == {"cat 0.80, was bus": "changed"}
    assert kinds([(near, 1, 0.2)], before) == {"bus 0.20 < 0.3": "weak"}
    assert kinds([(AWAY, 1, 0.2)], before) == {"bus lost": "lost"}, "a weak box elsewhere is another object"
    assert kinds([], before) == {"bus lost": "lost"}
    assert kinds([(near, 2, 0.8), (HERE, 1, 0.7)], before) == {"bus 0.70": "found", "cat 0.80, new": "new"}
    leaving = [([60.0, 0, 160, 100], 1, 0.9)]
    assert kinds([([60.0, 0, 100, 100], 2, 0.8)], leaving) == {"cat 0.80, was bus": "changed"}, "what is left of it"
    assert kinds([(AWAY, 2, 0.5)], []) == {"cat 0.50, new": "new"}
    assert kinds([], [([200.0, 0, 300, 50], 1, 0.9)]) == {}, "an object that left the picture is not marked"
    many = [([10.0 * number, 0, 10.0 * number + 9, 9], 0, 0.9) for number in range(9)]
    marked = MARKER.mark_changed(detections([]), detections([*many, (AWAY, 1, 0.9)]), (1,))
    assert len(marked) == MOST and marked[0].text == "bus lost", "there is room for the label"
    clean = MARKER.mark_clean(detections([(HERE, 1, 0.9), (AWAY, 2, 0.1)]))
    assert clean == (Mark((pytest.approx(0.1), pytest.approx(0.1), 0.5, 0.5), "bus 0.90", "found"),)


def test_kinds_differ_without_colour() -> None:
    """In grey, kinds differ in their lines; those with the same line differ in their text."""
    plain = Image.new("RGB", (200, 200), "grey")
    box = (0.2, 0.4, 0.8, 0.9)
    lines = {}
    for kind in STYLES:
        edge = np.asarray(draw_marks(plain, [Mark(box, "", kind)], text_size=18).convert("L"))[180, 60:150]
        lines[kind] = int((edge != edge[0]).sum()), int((np.diff(edge.astype(int)) != 0).sum())
    assert lines["found"][1] == lines["new"][1] == 0, "solid"
    assert (
        len({lines[kind] for kind in ("lost", "weak", "changed")}) == 3
        and min(lines[kind][1] for kind in ("lost", "weak", "changed")) > 2
    ), "dashes of different lengths"


def test_labels_stay_on_the_picture_and_apart() -> None:
    plain = Image.new("RGB", (240, 120), "white")
    marks = [Mark((0.9, 0.0, 1.3, 0.2), "a long name 0.95", "found"), Mark((0.9, 0.0, 1.0, 0.2), "cat 0.90", "lost")]
    drawn = np.asarray(draw_marks(plain, marks, text_size=12)).astype(int)
    blue, red = (np.abs(drawn - np.array(colour)).sum(2) < 30 for colour in ((31, 111, 214), (214, 40, 40)))
    assert blue.sum() > 900 and red.sum() > 500, "both labels are filled, and neither hides the other"
    assert enlarge(Image.new("RGB", (28, 28)), 480).size == (480, 480)
    assert enlarge(Image.new("RGB", (640, 500)), 480).size == (640, 500)


@pytest.fixture(scope="module")
def spots_run(tmp_path_factory: pytest.TempPathFactory) -> brinell.Run:
    folder = tmp_path_factory.mktemp("pictures")
    data = {"source": str(spots.__wrapped__(folder)), "preferred": "spot"}  # type: ignore[attr-defined]
    lenses = [
        {"name": "profile", "operators": ["fade_black"], "levels": 20},
        {"name": "knob", "operators": ["brightness", "horizontal_translation"], "points": 32},
        {"name": "geometry", "operators": ["translation"], "methods": ["grid"], "grid_motions": 49},
        {"name": "highlights", "operators": ["highlight"], "cells": 2, "sigmas": [8]},
        {"name": "fragility", "operators": ["windows"], "sizes": [0.5], "stride": 3},
    ]
    return brinell.run(wrapped(Spots()), data, lens=lenses, out=folder / "run", execution=PLAIN, quiet=True)


def test_every_exhibit_has_boxes_and_a_reason(spots_run: brinell.Run) -> None:
    for lens in ("profile", "knob"):
        exhibits = read_exhibits(spots_run, lens)
        assert exhibits
        for exhibit in exhibits:
            assert [mark.kind for mark in exhibit.clean_marks][:1] == ["found"]
            assert exhibit.clean_marks[0].text.startswith("spot ")
            if not exhibit.correct:
                assert re.fullmatch(r"score of spot 0\.\d+ is below the threshold 0\.3|spot lost", exhibit.reason)
                assert {mark.kind for mark in exhibit.marks} <= {"weak", "lost"}
    causes = spots_run.rows("select correct, cause, count(*) from rows where lens = 'profile' group by all").fetchall()
    assert {(correct, cause) for correct, cause, _ in causes} <= {(True, None), (False, CAUSES[0]), (False, CAUSES[3])}
    assert (False, "score below threshold") in {(correct, cause) for correct, cause, _ in causes}


def test_boxes_follow_the_image(spots_run: brinell.Run) -> None:
    """An object is marked as lost, or with too low a score, where the change moved it to."""
    moved = [exhibit for exhibit in read_exhibits(spots_run, "knob") if exhibit.operator.startswith("horizontal")]
    assert moved
    for exhibit in moved:
        places = [
            (mark.box[0] + exhibit.parameters[0], mark.box[2] + exhibit.parameters[0]) for mark in exhibit.clean_marks
        ]
        for mark in exhibit.marks:
            left, _, right, _ = mark.box
            assert any(max(left, low) < min(right, high) for low, high in places)
    assert any(mark.kind == "lost" for exhibit in moved for mark in exhibit.marks)


def images_of(page: str) -> list[Image.Image]:
    sources = re.findall(r'src="data:image/(?:jpeg|webp);base64,([^"]+)"', page)
    return [Image.open(io.BytesIO(base64.b64decode(source))).convert("RGB") for source in sources]


def test_the_report_draws_them_without_the_model(spots_run: brinell.Run) -> None:
    page = Path(spots_run.report()).read_text()
    assert page.count("is below the threshold 0.3") >= 3 and "Boxes:" in page
    for style in STYLES.values():
        assert style.meaning in page
    blue = [(np.abs(np.asarray(image).astype(int) - (31, 111, 214)).sum(2) < 40).sum() for image in images_of(page)]
    assert sum(count > 500 for count in blue) >= len(read_exhibits(spots_run, "profile"))
    assert all(min(image.size) >= BOXED_SIDE for image, count in zip(images_of(page), blue, strict=True) if count > 500)


def test_fragile_windows_have_boxes_and_reasons(spots_run: brinell.Run) -> None:
    stored = json.loads(spots_run.store.read("fragility", "exhibits.json"))
    assert stored["pairs"]
    for pair in stored["pairs"]:
        assert pair["first"]["marks"] and pair["reason"]


def test_show_draws_a_detector_s_boxes(assets: Path, tmp_path: Path) -> None:
    image = assets / "images" / "coco_val_128" / "images" / "000000000285.jpg"
    given = ["show", str(image), "--operator", "rotation", "--spot", "300,200,60"]
    main([*given, "--model", detector_source(assets, DETECTORS[0]), "--out", str(tmp_path / "with.png")])
    main([*given, "--size", "300", "--out", str(tmp_path / "without.png")])
    with_boxes, without = (np.asarray(Image.open(tmp_path / f"{name}.png")).astype(int) for name in ("with", "without"))
    assert with_boxes.shape == without.shape
    blue = np.abs(with_boxes - (31, 111, 214)).sum(2) < 40
    assert blue.sum() > 2000 > (np.abs(without - (31, 111, 214)).sum(2) < 40).sum()


def test_curated_examples_have_boxes(spots_run: brinell.Run, tmp_path: Path) -> None:
    data = spots_run.config["data"]["source"]
    given = {"models": [wrapped(Spots())], "data": Path(spots_run.folder).parent / "spots" / Path(data).name}
    brinell.curate(spots_run, tmp_path / "failures", {"lens": "knob"}, **given, quiet=True)
    sheet = np.asarray(Image.open(tmp_path / "failures" / ".card" / "examples.png").convert("RGB")).astype(int)
    assert (np.abs(sheet - (31, 111, 214)).sum(2) < 40).sum() > 500


# ---- saliency and photographs ----


class Convolved(Spots):
    """The same by a convolution, which has saliency maps."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = nn.Conv2d(3, 1, 8, 8, bias=False)
        self.mean.weight.data.fill_(1 / (3 * 64))

    def squares(self, images: Tensor) -> Tensor:
        return self.mean(images)


def count_blue(picture: Image.Image) -> int:
    return int((np.abs(np.asarray(picture.convert("RGB")).astype(int) - (31, 111, 214)).sum(2) < 40).sum())


@pytest.mark.slow
def test_saliency_pictures_have_boxes(tmp_path: Path) -> None:
    data = {"source": str(spots.__wrapped__(tmp_path)), "preferred": "spot"}  # type: ignore[attr-defined]
    lenses = [
        {"name": "knob", "operators": ["brightness", "horizontal_translation"], "points": 32},
        {"name": "fragility", "operators": ["windows"], "sizes": [0.5], "stride": 3},
    ]
    given: dict[str, Any] = {"lens": lenses, "out": tmp_path / "run", "execution": PLAIN, "quiet": True}
    run = brinell.run(wrapped(Convolved()), data, saliency={"pairs": 4}, **given)
    pairs = read_pairs(run)
    assert {pair.lens for pair in pairs} == {"knob", "fragility"}
    for pair in pairs:
        assert pair.clean_marks[0].kind == "found" and pair.clean_marks[0].text.startswith("spot ")
        assert pair.marks and {mark.kind for mark in pair.marks} <= {"weak", "lost"}, "it fails"
    sheet = Image.open(io.BytesIO(draw_boxes(run.store.read(*pairs[0].file.split("/")), (pairs[0].clean_marks, ()))))
    width, height = sheet.size
    assert width > 3 * SIDE and height > 2 * SIDE
    quarters = [sheet.crop((x, y, x + width // 3, y + height // 2)) for y in (0, height // 2) for x in (0, width // 3)]
    assert [count_blue(each) > 500 for each in quarters] == [True, False, False, False], "on the first image alone"
    page = Path(run.report()).read_text()
    assert sum(picture.width > 3 * SIDE for picture in images_of(page)) == len(pairs)


def test_a_variant_is_shown_next_to_its_original(tmp_path: Path) -> None:
    for name, grey in (("a", 250), ("a_night", 60)):
        array = np.full((48, 64, 3), 20, np.uint8)
        array[24:36, 16:32] = grey
        (tmp_path / "photos").mkdir(exist_ok=True)
        Image.fromarray(array).save(tmp_path / "photos" / f"{name}.png")
    pattern = r"(?P<original>[^/_]+)(_(?P<variant>\w+))?\.png$"
    data = {"source": str(tmp_path / "photos"), "pattern": pattern, "labels": "prediction"}
    run = brinell.run(wrapped(Spots()), data, lens="photographs", out=tmp_path / "run", execution=PLAIN, quiet=True)
    (exhibit,) = read_exhibits(run, "photographs")
    clean, changed = (Image.open(Path(run.folder) / file) for file in (exhibit.clean_file, exhibit.file))
    assert np.asarray(clean).max() > 200 > 100 > np.asarray(changed).max()
    assert exhibit.clean_marks[0].kind == "found" and exhibit.marks[0].kind in ("weak", "lost")
    assert exhibit.scores is not None and exhibit.scores[0] > 0.3 > exhibit.scores[1] and exhibit.reason
