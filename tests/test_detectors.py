"""Detectors from a string or module to a run's rows, with real networks on real photographs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import brinell
from brinell.api import assembled
from brinell.boxes import box_iou
from brinell.config.data import DataOptions
from brinell.datasets.objects import ObjectRule, object_rule
from brinell.engine.plan import plan
from brinell.lenses.profile.findings import Profiles
from brinell.lenses.profile.precision import precision
from brinell.types import Sample
from conftest import PLAIN

CLASSES = ("sky", "spot")


class Spots(nn.Module):
    """Finds the white spot of an image: boxes and class scores of each of 8x8 squares, relative to the image."""

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        squares = nn.functional.avg_pool2d(images.mean(1, keepdim=True), 8)
        count = squares.shape[2]
        place = torch.arange(count, device=images.device) / count
        y, x = torch.meshgrid(place, place, indexing="ij")
        low = torch.stack([x, y], -1).reshape(1, -1, 2).expand(len(images), -1, -1)
        spot = squares.flatten(1)
        return torch.cat([low, low + 1 / count], -1), torch.stack([torch.zeros_like(spot), spot], -1)


class Listed(Spots):
    """The same as torchvision's detectors answer."""

    def forward(self, images: Any) -> Any:
        boxes, scores = super().forward(images)
        side = images.shape[2]
        return [
            {"boxes": own * side, "labels": torch.ones(len(own), dtype=torch.int64), "scores": each[:, 1]}
            for own, each in zip(boxes, scores, strict=True)
        ]


@pytest.fixture
def spots(tmp_path: Path) -> Path:
    """Six grey images 64x48 with a white square each, which moves, and a small one; the last has only the small one."""
    folder = tmp_path / "spots"
    folder.mkdir()
    images, annotations = [], []
    for index in range(6):
        array = np.full((48, 64, 3), 20, np.uint8)
        array[24:36, 8 * index : 8 * index + 16] = 250 if index < 5 else 20
        Image.fromarray(array).save(folder / f"{index}.png")
        images.append({"id": index, "file_name": f"{index}.png"})
        if index < 5:
            annotations.append({"image_id": index, "category_id": 7, "bbox": [8 * index, 24, 16, 12]})
        annotations.append({"image_id": index, "category_id": 9, "bbox": [0, 0, 4, 4]})
    categories = [{"id": 9, "name": "fly"}, {"id": 7, "name": "spot"}]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "spots.json").write_text(json.dumps(content))
    return folder / "spots.json"


def wrapped(module: nn.Module, **detection: Any) -> brinell.Model:
    return brinell.wrap(module, size=32, classes=CLASSES, name="spots", detection=detection, execution=PLAIN)


def test_a_module_of_heads_and_one_of_lists_say_the_same() -> None:
    images = torch.randint(0, 256, (3, 3, 32, 32), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    first, second = wrapped(Spots()), wrapped(Listed())
    assert first.outputs == second.outputs == 2
    for one, two in zip(first.answer(images), second.answer(images), strict=True):
        if isinstance(one, Tensor) and isinstance(two, Tensor):
            torch.testing.assert_close(one, two)
        else:
            assert one is not None and two is not None
            torch.testing.assert_close(one.boxes, two.boxes)
            assert one.labels.equal(two.labels)


def test_what_a_detector_may_not_be() -> None:
    with pytest.raises(brinell.ModelError, match="returns labels, so it needs its class list"):
        brinell.wrap(Listed(), size=32, detection={}, execution=PLAIN)
    with pytest.raises(brinell.ModelError, match="scores for 2 classes, but its class list has 3 names"):
        brinell.wrap(Spots(), size=32, detection={}, classes=["a", "b", "c"], execution=PLAIN)
    with pytest.raises(brinell.ConfigError, match="box_format: input should be 'xyxy'"):
        wrapped(Spots(), box_format="yxyx")
    with pytest.raises(brinell.ConfigError, match="box_formt is not an option"):
        wrapped(Spots(), box_formt="xyxy")
    with pytest.raises(brinell.ConfigError, match="iou_threshold is an option of detectors; set task=detection to use it"):
        brinell.open_model("fake:grey?iou_threshold=0.5")


def test_rows_of_a_detector(spots: Path, tmp_path: Path) -> None:
    data = {"source": str(spots), "preferred": "spot"}
    lens = {"name": "profile", "operators": ["fade_black"], "levels": 20}
    run = brinell.run(wrapped(Spots()), data, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    problems = run.rows("select name, problem from samples where problem is not null").fetchall()
    assert problems == [("5.png", "no spot")]
    clean = run.rows("select index, label, prediction, correct, true_boxes, true_labels, region from clean").fetchall()
    assert [row[:4] for row in clean] == [(index, 1, 1, True) for index in range(5)]
    assert clean[1][4] == [[4.0, 16.0, 12.0, 24.0], [0.0, 0.0, 2.0, pytest.approx(8 / 3)]]
    assert clean[1][5] == [1, -1], "the model doesn't know flies"
    assert clean[1][6] == clean[1][4][0]
    bad = run.rows(
        """select count(*) from rows where correct != (coalesce(list_max(detected_scores), 0) >= 0.3)
           or probability != coalesce(list_max(detected_scores), 0) or len(detected_boxes) != len(detected_labels)
           or list_contains(detected_labels, -1) or (prediction = -1) != (len(detected_labels) = 0)"""
    ).fetchall()
    assert bad == [(0,)]
    assert run.rows("select bool_and(correct), bool_or(correct) from rows where level = 20").fetchall() == [(False, False)]


def test_a_plan_counts_what_detections_take(spots: Path) -> None:
    lens = {"name": "profile", "operators": ["jpeg"], "levels": 3}
    costs = [plan(assembled(model, spots, lens=lens, execution=PLAIN)) for model in (wrapped(Spots()), "fake:grey")]
    assert costs[0].rows == costs[1].rows == 6 * 4
    assert costs[0].bytes > 20 * costs[1].bytes


def test_the_preferred_object() -> None:
    image = torch.zeros(3, 100, 100, dtype=torch.uint8)
    boxes = torch.tensor([[0.0, 0, 50, 50], [0, 0, 20, 30], [90, 90, 400, 400]])
    sample = Sample(image, None, "a", boxes, (0, 1, 1))
    classes = ("cat", "school bus")
    assert ObjectRule().index(sample, classes) == 0
    assert ObjectRule("school_bus").index(sample, classes) == 1, "what lies outside the image is not counted"
    assert ObjectRule("school bus", 0.05).index(sample, classes) == 1
    assert ObjectRule("school bus", 0.07).index(sample, classes) is None
    assert ObjectRule("1").index(sample, classes) == 1
    assert ObjectRule("dog").index(sample, None) is None
    assert ObjectRule("bus", 0.05).missing == "no bus that covers 5 % of the image"
    assert object_rule(DataOptions(source="x"), detectors=False) is None
    assert object_rule(DataOptions(source="x", labels="prediction"), detectors=True) is None
    assert object_rule(DataOptions(source="x"), detectors=True) == ObjectRule()


def test_a_class_that_no_image_can_have(spots: Path, tmp_path: Path) -> None:
    data = {"source": str(spots), "preferred": "spto"}
    with pytest.raises(brinell.DataError, match="has no class 'spto' to prefer; did you mean spot"):
        brinell.run(wrapped(Spots()), data, out=tmp_path / "run", execution=PLAIN, quiet=True)


def test_criteria_of_detectors_are_for_detectors(spots: Path, tmp_path: Path) -> None:
    lens = {"name": "profile", "operators": ["jpeg"], "levels": 1, "criterion": "target_class_missing & misclassification"}
    with pytest.raises(brinell.ConfigError, match="is for detectors, and model grey is a classifier"):
        brinell.run("fake:grey", spots, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)


@pytest.mark.parametrize("criterion", ["target_class_missing", "regional_target_class_missing(0.05)"])
def test_the_knob_finds_the_known_breaking_point(spots: Path, tmp_path: Path, criterion: str) -> None:
    """The region moves with the image, so that a spot is lost only when it leaves the frame."""
    lens = {"name": "knob", "operators": ["horizontal_translation", "brightness"], "criterion": criterion}
    data = {"source": str(spots), "preferred": "spot"}
    run = brinell.run(wrapped(Spots()), data, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    shifts = run.rows(
        """select index, direction, amount from rows join samples using (image)
           where operator like 'horizontal%' and status = 'broken' order by index, direction"""
    ).fetchall()
    for index, direction, amount in shifts:
        left, right = 4 * index, 4 * index + 8  # on the model input
        leaves = 32 - left if direction == "right" else right
        assert leaves - 7 <= abs(amount) <= leaves, "a part of it is enough"
    assert len(shifts) == 10
    dark = run.rows(
        """select rows.amount, clean.confidence from rows join samples using (image) join clean using (index)
           where operator like 'brightness%' and direction = 'darker' and status = 'broken'"""
    ).fetchall()
    assert [amount for amount, _ in dark] == pytest.approx([0.3 / confidence for _, confidence in dark], abs=0.01)
    assert len(dark) == 5


def test_objects_that_nobody_marked(spots: Path, tmp_path: Path) -> None:
    """A detector's own answers as the truth: where it finds the object when clean is the region."""
    images = [np.asarray(Image.open(spots.parent / f"{index}.png")) for index in range(4)]
    lens = {"name": "knob", "operators": ["brightness"], "criterion": "regional_target_class_missing", "points": 50}
    data = {"source": images, "labels": "prediction"}
    run = brinell.run(wrapped(Spots()), data, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    found = run.rows("select status, count(*) from rows where direction = 'darker' group by all").fetchall()
    assert found == [("broken", 4)]


# ---- real networks ----


def real(assets: Path, name: str, options: str = "") -> str:
    classes = assets / "models" / "coco80.txt"
    return f"onnx:{assets}/models/{name}.onnx?task=detection&classes={classes}&interpolation=bilinear{options}"


DETECTORS = ["ssdlite_mobilenet_v2_coco", "yolo_fastest_1.1_coco", "nanodet_g_coco"]


@pytest.mark.parametrize("name", DETECTORS)
def test_real_detectors_find_the_bear(assets: Path, name: str) -> None:
    model = brinell.open_model(real(assets, name))
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


def test_the_paper_s_selection(assets: Path, tmp_path: Path) -> None:
    """Objects of one class on at least 5 % of the image, found by all models."""
    data = {"source": str(assets / "images" / "coco_val_128" / "instances.json"), "preferred": "person", "min_area": 0.05}
    run = brinell.run(
        [real(assets, name) for name in DETECTORS[:2]],
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


@pytest.fixture(scope="module")
def coco_run(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> brinell.Run:
    """All images of the set, clean and under one operator."""
    return brinell.run(
        real(assets, DETECTORS[0], "&iou_threshold=0.6"),
        assets / "images" / "coco_val_128" / "instances.json",
        lens={"name": "profile", "operators": ["white_fog"], "levels": 1},
        out=tmp_path_factory.mktemp("coco") / "run",
        execution=brinell.Execution(batch=8),
        quiet=True,
    )


@pytest.mark.slow
def test_the_known_average_precision(coco_run: brinell.Run) -> None:
    """36.7 % and 53.6 % were measured on these images by other code."""
    (points,) = coco_run.summary().curves.values()
    assert points[0].images == 128
    assert points[0].map is not None and points[0].map50 is not None and points[1].map is not None
    assert points[0].map.value == pytest.approx(0.367, abs=0.002)
    assert points[0].map50.value == pytest.approx(0.536, abs=0.002)
    assert points[1].map.value < points[0].map.value - 0.01


@pytest.mark.slow
def test_average_precision_is_told_everywhere(coco_run: brinell.Run) -> None:
    found = coco_run.summary()
    assert isinstance(found, Profiles)
    assert found.metrics[-2:] == ("map", "map50")
    clean, mean = found.precision(found.models[0]) or (0, 0)
    assert 0.3 < mean < clean < 0.4
    assert f"Its mAP is {clean:.1%} on clean images" in found.verdict(found.models[0])
    told = [record for record in found.to_dict()["profiles"] if record["metric"] == "map50"]
    assert [record["level"] for record in told] == [0, 1, 0, 1]
    assert all(record["low"] is None for record in told)
    assert "mean average precision" in coco_run.figure("operators", metric="map", model=found.models[0]).to_json()
    page = Path(coco_run.report()).read_text()
    assert "mAP on clean images" in page and "target class missing" in page
    assert coco_run.rows("select count(*) from precision").fetchall() == [(2,)]


def test_average_precision_by_hand() -> None:
    first, second = (0.0, 0.0, 10.0, 10.0), (20.0, 20.0, 40.0, 40.0)
    marked = [("a", [first, second], [0, 3]), ("b", [first], [0]), ("c", [second], [-1])]

    def of(*found: tuple[str, list[tuple[float, ...]], list[int], list[float]]) -> tuple[float, float]:
        got = precision(found, marked)
        return round(got.map, 3), round(got.map50, 3)

    right = [("a", [first, second], [0, 3], [0.9, 0.8]), ("b", [first], [0], [0.7])]
    assert of(*right) == (1, 1)
    assert of(*right, ("c", [second, first], [5, 7], [0.9, 0.9])) == (1, 1), "classes that are nowhere marked don't count"
    assert of(right[0]) == (0.752, 0.752), "half of one class: 51 of 101 points of recall"
    assert of() == (0, 0)
    shifted = ("b", [(2.0, 0.0, 12.0, 10.0)], [0], [0.7])  # overlaps by two thirds
    assert of(right[0], shifted)[1] == 1 and of(right[0], shifted)[0] < 1
    assert np.isnan(precision([], [("c", [second], [-1])]).map)


def test_what_average_precision_needs(spots: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        brinell.MissingExtra, match=r"needs pycocotools, which is not installed: pip install 'brinell\[detec"
    ):
        brinell.run(wrapped(Spots()), spots, out=tmp_path / "run", execution=PLAIN, quiet=True)
    assert not (tmp_path / "run").exists(), "it is said before anything is done"
