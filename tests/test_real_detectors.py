"""Real detectors on real photographs."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest
import torch

import brinell
from brinell.boxes import box_iou
from brinell.cli.main import main
from brinell.config.detection import Decoding
from brinell.lenses.profile.findings import ProfileFindings
from brinell.models.decoding_check import FORMATS, UNITS, DecodingCheck, advise_boxes, read_boxes, write_boxes
from brinell.report.exhibits import read_exhibits


def detector_source(assets: Path, name: str, options: str = "") -> str:
    classes = assets / "models" / "coco80.txt"
    return f"onnx:{assets}/models/{name}.onnx?task=detection&classes={classes}&interpolation=bilinear{options}"


DETECTORS = ["ssdlite_mobilenet_v2_coco", "yolo_fastest_1.1_coco", "nanodet_g_coco"]


@pytest.mark.parametrize("name", DETECTORS)
def test_real_detectors_find_the_bear(assets: Path, name: str) -> None:
    model = brinell.open_model(detector_source(assets, name))
    dataset = brinell.open_dataset(assets / "images" / "coco_val_128" / "instances.json")
    sample = next(dataset[index] for index in range(10) if dataset[index].name == "000000000285.jpg")
    assert model.classes is not None and model.detector is not None and sample.boxes is not None
    model_input = model.preprocess.model_input(sample.image)
    probabilities, detections = model.answer(model_input[None])
    assert detections is not None
    assert model.classes.short_name(int(probabilities.argmax())) == "bear"
    found = model.detector.found(detections)
    truth = model.preprocess.map_boxes(sample.boxes, *sample.image.shape[1:])
    assert float(box_iou(found.boxes[:, 0], truth).max()) > 0.7


@pytest.mark.parametrize("name", DETECTORS)
def test_every_wrong_box_format_is_noticed(assets: Path, name: str) -> None:
    """The boxes of a real detector, as a network of every format would write them, read as every other format."""
    model = brinell.open_model(detector_source(assets, name))
    dataset = brinell.open_dataset(assets / "images" / "coco_val_128" / "instances.json")
    assert model.detector is not None
    inputs = torch.stack([model.preprocess.model_input(dataset[index].image) for index in range(32)])
    check, size = DecodingCheck(model), (model.preprocess.height, model.preprocess.width)
    check.add([model.answer(inputs)[1]])  # type: ignore[list-item]
    assert check.warning() is None, "it is decoded rightly"
    boxes, decodings = torch.cat(check.boxes), list(product(FORMATS, UNITS))
    for true, read in product(decodings, decodings):
        decoded = read_boxes(write_boxes(boxes, *true, size), *read, size)
        advice = advise_boxes(decoded, Decoding(box_format=read[0], box_units=read[1]), size)  # type: ignore[arg-type]
        if true == read:
            assert advice is None
        else:
            pairs = zip(("box_format", "box_units"), true, read, strict=True)
            wanted = "&".join(f"{key}={right}" for key, right, wrong in pairs if right != wrong)
            assert advice is not None and advice.endswith(f": add ?{wanted}"), (true, read, advice)


def test_a_wrong_box_format_is_said_in_one_line(assets: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the command, which first estimates the time on a few images, some of which may have no label."""
    source = detector_source(assets, DETECTORS[1], "&box_format=cxcywh&name=yolo&score_threshold=0.5")
    folder = str(assets / "images" / "coco_val_128" / "images")
    given = ["--model", source, "--data", folder, "--labels", "prediction", "--limit", "12", "--batch", "4"]
    main(["run", *given, "--operator", "white_fog", "--levels", "1", "--out", str(tmp_path / "run"), "--yes"])
    assert "<b>Warning.</b> yolo: " in (tmp_path / "run" / "report.html").read_text()
    assert brinell.Run(tmp_path / "run").rows("select bool_and(correct) from rows where level = 0").fetchall() == [(True,)]
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]
    assert re.fullmatch(
        r"warning: yolo: \d\d% of its boxes lie outside the image or have no size with box_format=cxcywh; xyxy fits: add "
        r"\?box_format=xyxy",
        line,
    )


@pytest.mark.slow
def test_images_are_selected_as_in_the_paper(assets: Path, tmp_path: Path) -> None:
    """Objects of one class on at least 5 % of the image, found by all models."""
    data = {"source": str(assets / "images" / "coco_val_128" / "instances.json"), "preferred": "person", "min_area": 0.05}
    run = brinell.run(
        [detector_source(assets, name) for name in DETECTORS[:2]],
        {**data, "limit": 20},
        lens={"name": "knob", "operators": ["brightness"], "points": 2},
        select="correct",
        out=tmp_path / "run",
        execution=brinell.Execution(batch=4),
        quiet=True,
    )
    left_out = run.rows("select problem, count(*) from samples where problem is not null group by 1").fetchall()
    assert [problem for problem, _ in left_out] == ["no person that covers 5 % of the image"]
    kept = run.rows("select index, bool_and(kept), bool_and(correct), min(confidence) from clean group by 1").fetchall()
    assert kept and all(is_kept == right for _, is_kept, right, _ in kept)
    assert run.rows("select count(*) from rows where status = 'skipped'").fetchall() == [(0,)]
    assert run.rows("select distinct label from rows").fetchall() == [(0,)]
    exhibits = read_exhibits(run, "knob")
    assert {exhibit.model for exhibit in exhibits} == set(run.models)
    for exhibit in exhibits:
        assert exhibit.clean_marks[0].text.startswith("person ") and exhibit.marks
        assert re.fullmatch(r"(class changed to \w[\w ]*|score of person 0\.\d+ is below .*|person lost).*", exhibit.reason)


@pytest.fixture(scope="module")
def coco_run(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> brinell.Run:
    """A run on all images, with one operator."""
    return brinell.run(
        detector_source(assets, DETECTORS[0], "&iou_threshold=0.6"),
        assets / "images" / "coco_val_128" / "instances.json",
        lens={"name": "profile", "operators": ["white_fog"], "levels": 1},
        out=tmp_path_factory.mktemp("coco") / "run",
        execution=brinell.Execution(batch=8),
        quiet=True,
    )


@pytest.mark.slow
def test_average_precision_matches_the_known_one(coco_run: brinell.Run) -> None:
    """36.7 % and 53.6 % were measured on these images with other code."""
    (points,) = coco_run.summary().curves.values()
    assert points[0].images == 128
    assert points[0].map is not None and points[0].map50 is not None and points[1].map is not None
    assert points[0].map.value == pytest.approx(0.367, abs=0.002)
    assert points[0].map50.value == pytest.approx(0.536, abs=0.002)
    assert points[1].map.value < points[0].map.value - 0.01


@pytest.mark.slow
def test_average_precision_is_reported_everywhere(coco_run: brinell.Run) -> None:
    found = coco_run.summary()
    assert isinstance(found, ProfileFindings)
    assert found.metrics[-2:] == ("map", "map50")
    clean, mean = found.precision(found.models[0]) or (0, 0)
    assert 0.3 < mean < clean < 0.4
    assert f"Its mAP is {clean:.1%} on clean images" in found.verdict(found.models[0])
    records = [record for record in found.to_json()["profiles"] if record["metric"] == "map50"]
    assert [record["level"] for record in records] == [0, 1, 0, 1]
    assert all(record["low"] is None for record in records)
    assert "mean average precision" in coco_run.figure("operators", metric="map", model=found.models[0]).to_json()
    page = Path(coco_run.report()).read_text()
    assert "mAP (IoU 0.5 to 0.95), on clean images" in page and "target class missing" in page
    assert coco_run.rows("select count(*) from precision").fetchall() == [(2,)]


def test_a_real_detector_under_a_letterbox(assets: Path) -> None:
    """Boxes on the letterboxed input are where the image's own are, on the input and back."""
    model = brinell.open_model(detector_source(assets, DETECTORS[0], "&resize=letterbox"))
    dataset = brinell.open_dataset(assets / "images" / "coco_val_128" / "instances.json")
    sample = next(dataset[index] for index in range(10) if dataset[index].name == "000000000285.jpg")
    assert model.detector is not None and sample.boxes is not None and model.preprocess.fill == 114
    detections = model.answer(model.preprocess.model_input(sample.image)[None])[1]
    assert detections is not None
    best = model.detector.found(detections).boxes[0, :1]
    assert float(box_iou(best, model.preprocess.map_boxes(sample.boxes, *sample.image.shape[1:])).max()) > 0.7
    assert float(box_iou(model.preprocess.unmap_boxes(best, *sample.image.shape[1:]), sample.boxes).max()) > 0.7
