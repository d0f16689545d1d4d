"""Detectors: from modules to rows, preferred objects and average precision."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import brinell
from brinell.api import open_setup
from brinell.config.data import DataOptions
from brinell.datasets.objects import ObjectRule, object_rule
from brinell.engine.estimates.plan import plan
from brinell.lenses.profile.precision import evaluate
from brinell.types import Sample
from conftest import PLAIN

CLASSES = ("sky", "spot")


class Spots(nn.Module):
    """Finds the white spot of an image: boxes and class scores of each of 8x8 squares, relative to the image."""

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        squares = self.squares(images)
        count = squares.shape[2]
        starts = torch.arange(count, device=images.device) / count
        y, x = torch.meshgrid(starts, starts, indexing="ij")
        low = torch.stack([x, y], -1).reshape(1, -1, 2).expand(len(images), -1, -1)
        spot = squares.flatten(1)
        return torch.cat([low, low + 1 / count], -1), torch.stack([torch.zeros_like(spot), spot], -1)

    def squares(self, images: Tensor) -> Tensor:
        return nn.functional.avg_pool2d(images.mean(1, keepdim=True), 8)


class Listed(Spots):
    """The same, with torchvision's form of output."""

    def forward(self, images: Any) -> Any:
        boxes, scores = super().forward(images)
        side = images.shape[2]
        return [
            {"boxes": own * side, "labels": torch.ones(len(own), dtype=torch.int64), "scores": each[:, 1]}
            for own, each in zip(boxes, scores, strict=True)
        ]


@pytest.fixture
def spots(tmp_path: Path) -> Path:
    """Six grey images of 64x48 with a white square, which moves, and a small box; the last has only the small box."""
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


def test_outputs_as_heads_and_as_lists_give_the_same_detections() -> None:
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


def test_invalid_detectors_raise() -> None:
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
    assert clean[1][5] == [1, -1], "the model has no class fly"
    assert clean[1][6] == clean[1][4][0]
    bad = run.rows(
        """select count(*) from rows where correct != (coalesce(list_max(detected_scores), 0) >= 0.3)
           or probability != coalesce(list_max(detected_scores), 0) or len(detected_boxes) != len(detected_labels)
           or list_contains(detected_labels, -1) or (prediction = -1) != (len(detected_labels) = 0)"""
    ).fetchall()
    assert bad == [(0,)]
    assert run.rows("select bool_and(correct), bool_or(correct) from rows where level = 20").fetchall() == [(False, False)]


def test_a_plan_includes_the_size_of_detections(spots: Path) -> None:
    lens = {"name": "profile", "operators": ["jpeg"], "levels": 3}
    costs = [plan(open_setup(model, spots, {"lens": lens}, PLAIN)) for model in (wrapped(Spots()), "fake:grey")]
    assert costs[0].rows == costs[1].rows == 6 * 4
    assert costs[0].bytes > 20 * costs[1].bytes


def test_the_preferred_object() -> None:
    image = torch.zeros(3, 100, 100, dtype=torch.uint8)
    boxes = torch.tensor([[0.0, 0, 50, 50], [0, 0, 20, 30], [90, 90, 400, 400]])
    sample = Sample(image, None, "a", boxes, (0, 1, 1))
    classes = ("cat", "school bus")
    assert ObjectRule().index(sample, classes) == 0
    assert ObjectRule("school_bus").index(sample, classes) == 1, "the part outside the image does not count"
    assert ObjectRule("school bus", 0.05).index(sample, classes) == 1
    assert ObjectRule("school bus", 0.07).index(sample, classes) is None
    assert ObjectRule("1").index(sample, classes) == 1
    assert ObjectRule("dog").index(sample, None) is None
    assert ObjectRule("bus", 0.05).missing == "no bus that covers 5 % of the image"
    assert object_rule(DataOptions(source="x"), detectors=False) is None
    assert object_rule(DataOptions(source="x", labels="prediction"), detectors=True) is None
    assert object_rule(DataOptions(source="x"), detectors=True) == ObjectRule()


def test_an_unknown_preferred_class_raises(spots: Path, tmp_path: Path) -> None:
    data = {"source": str(spots), "preferred": "spto"}
    with pytest.raises(brinell.DataError, match="has no class 'spto' to prefer; did you mean spot"):
        brinell.run(wrapped(Spots()), data, out=tmp_path / "run", execution=PLAIN, quiet=True)


def test_criteria_of_detectors_need_a_detector(spots: Path, tmp_path: Path) -> None:
    lens = {"name": "profile", "operators": ["jpeg"], "levels": 1, "criterion": "target_class_missing & misclassification"}
    with pytest.raises(brinell.ConfigError, match="needs a detector, but model grey is a classifier"):
        brinell.run("fake:grey", spots, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)


@pytest.mark.parametrize("criterion", ["target_class_missing", "regional_target_class_missing(0.05)"])
def test_the_knob_finds_the_known_breaking_point(spots: Path, tmp_path: Path, criterion: str) -> None:
    """The region moves with the image, so a spot is lost only when it leaves the frame."""
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
        assert leaves - 7 <= abs(amount) <= leaves, "a visible part is enough"
    assert len(shifts) == 10
    dark = run.rows(
        """select rows.amount, clean.confidence from rows join samples using (image) join clean using (index)
           where operator like 'brightness%' and direction = 'darker' and status = 'broken'"""
    ).fetchall()
    assert [amount for amount, _ in dark] == pytest.approx([0.3 / confidence for _, confidence in dark], abs=0.01)
    assert len(dark) == 5


def test_objects_without_annotations(spots: Path, tmp_path: Path) -> None:
    """The detections on the clean image serve as labels and regions."""
    images = [np.asarray(Image.open(spots.parent / f"{index}.png")) for index in range(4)]
    lens = {"name": "knob", "operators": ["brightness"], "criterion": "regional_target_class_missing", "points": 50}
    data = {"source": images, "labels": "prediction"}
    run = brinell.run(wrapped(Spots()), data, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    found = run.rows("select status, count(*) from rows where direction = 'darker' group by all").fetchall()
    assert found == [("broken", 4)]


def test_average_precision_by_hand() -> None:
    first, second = (0.0, 0.0, 10.0, 10.0), (20.0, 20.0, 40.0, 40.0)
    marked = [("a", [first, second], [0, 3]), ("b", [first], [0]), ("c", [second], [-1])]

    def of(*found: tuple[str, list[tuple[float, ...]], list[int], list[float]]) -> tuple[float, float]:
        got = evaluate(found, marked)
        return round(got.map, 3), round(got.map50, 3)

    right = [("a", [first, second], [0, 3], [0.9, 0.8]), ("b", [first], [0], [0.7])]
    assert of(*right) == (1, 1)
    assert of(*right, ("c", [second, first], [5, 7], [0.9, 0.9])) == (1, 1), "classes without annotations don't count"
    assert of(right[0]) == (0.752, 0.752), "half of one class: 51 of 101 points of recall"
    assert of() == (0, 0)
    shifted = ("b", [(2.0, 0.0, 12.0, 10.0)], [0], [0.7])  # overlaps by two thirds
    assert of(right[0], shifted)[1] == 1 and of(right[0], shifted)[0] < 1
    assert np.isnan(evaluate([], [("c", [second], [-1])]).map)


def say_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the lines that runs say from now on."""
    said: list[str] = []
    monkeypatch.setattr("brinell.engine.progress.Silent.say", lambda self, text: said.append(text))
    return said


def test_only_average_precision_needs_pycocotools(spots: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lens, marked = {"name": "profile", "operators": ["fade_black"], "levels": 1}, {"source": spots, "preferred": "spot"}
    said = say_of(monkeypatch)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "pycocotools", None)
        without.setattr("importlib.util.find_spec", lambda name: None)
        data = {"source": str(spots.parent), "labels": "prediction"}
        brinell.run(wrapped(Spots()), data, lens=lens, out=tmp_path / "plain", execution=PLAIN, quiet=True)
        assert not any("pycocotools" in line for line in said), "there are no objects to compute it from"
        run = brinell.run(wrapped(Spots()), marked, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
        (advice,) = [line for line in said if "pycocotools" in line]
        assert advice.startswith("no average precision: this needs pycocotools")
        assert advice.endswith("; then rerun to add it")
        assert run.finished and run.summary().precision("spots") is None
    run = brinell.run(wrapped(Spots()), marked, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    assert run.summary().precision("spots") is not None


def test_predictions_as_labels_leave_out_images_without_a_detection(
    spots: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last image is dark: its best score is 0.08, which counts as nothing."""
    said = say_of(monkeypatch)
    data = {"source": str(spots.parent), "labels": "prediction"}
    lens = {"name": "profile", "operators": ["fade_black"], "levels": 2}
    run = brinell.run(wrapped(Spots()), data, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    assert [line for line in said if "left out" in line] == [
        "1 of 6 images are left out: spots finds nothing in them that could be their label (--labels prediction)"
    ]
    assert run.rows("select count(*), bool_and(correct), bool_and(kept) from clean").fetchall() == [(5, True, True)]
    assert run.rows("select bool_and(correct), count(*) from rows where level = 0").fetchall() == [(True, 5)]
    page = " ".join(Path(run.report()).read_text().split())
    assert "5 images were measured out of 6" in page and "1 were left out: a model found nothing in them" in page


def test_an_image_is_left_out_for_all_models(spots: Path, tmp_path: Path) -> None:
    blind = brinell.wrap(
        Spots(), size=32, classes=CLASSES, name="strict", detection={"score_threshold": 0.9}, execution=PLAIN
    )
    data = {"source": str(spots.parent), "labels": "prediction"}
    lens = {"name": "profile", "operators": ["fade_black"], "levels": 1}
    run = brinell.run([wrapped(Spots()), blind], data, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    counts = run.rows("select model, count(*), bool_and(correct) from clean group by all order by all").fetchall()
    assert counts == [("spots", 3, True), ("strict", 3, True)], "the other spots lie between two squares"


def test_a_detector_that_finds_nothing_is_reported(spots: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = say_of(monkeypatch)
    data = {"source": str(spots.parent), "labels": "prediction"}
    lens = {"name": "profile", "operators": ["jpeg"], "levels": 1}
    model = wrapped(Spots(), score_threshold=0.99)
    with pytest.raises(brinell.DataError, match="spots finds nothing in any of the 6 images; check how it normalises"):
        brinell.run(model, data, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    (warning,) = [line for line in said if line.startswith("warning")]
    assert re.fullmatch(
        r"warning: spots finds nothing in any of 6 clean images \(its best score is 0\.97, below 0\.99\); check how it "
        r"normalises images \(\?mean=, \?std=\), \?activation= and \?score_threshold=",
        warning,
    )
    marked = {"source": spots, "preferred": "spot"}
    brinell.run(model, marked, lens=lens, out=tmp_path / "labelled", execution=PLAIN, quiet=True)
    assert len([line for line in said if line.startswith("warning")]) == 2, "a run with labels goes on, and says so"


def test_a_wrong_box_format_is_reported(spots: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = say_of(monkeypatch)
    lens = {"name": "profile", "operators": ["jpeg"], "levels": 1}
    for number, options in enumerate(({}, {"box_format": "xywh"}, {"box_units": "pixels"})):
        model = wrapped(Spots(), score_threshold=0.05, **options)  # all squares are found
        data = {"source": spots, "preferred": "spot"}
        brinell.run(model, data, lens=lens, out=tmp_path / str(number), execution=PLAIN, quiet=True)
    warnings = [line.partition("; ")[2] for line in said if line.startswith("warning: spots: ")]
    assert warnings == ["xyxy fits: add ?box_format=xyxy", "relative fits: add ?box_units=relative"]
    pages = [Path(brinell.Run(tmp_path / str(number)).report()).read_text() for number in range(3)]
    assert [page.count("<b>Warning.</b>") for page in pages] == [0, 1, 1]
