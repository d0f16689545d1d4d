"""Figures that are no means over images: with and without each fold, their intervals, and where they are shown."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import brinell
from brinell.cli.main import main
from brinell.lenses.profile.precision import _box, evaluate
from brinell.lenses.profile.replicates import TITLES, replicate
from brinell.runs.folds import FOLD, FOLDS, Replicated, fold_of, mean_replicated
from brinell.runs.store import Store
from brinell.tracking.figures import summarise
from brinell.types import image_id
from conftest import PLAIN

OPERATORS = ["fade_black", "fade_white"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> brinell.Run:
    """Two models on images of many greys; a lower threshold stands more darkness."""
    noise = np.random.default_rng(0)
    images = [
        np.clip(40 + 4 * index + noise.integers(-20, 21, (20, 24, 3)), 0, 255).astype(np.uint8) for index in range(50)
    ]
    models = ["fake:grey:0.35?name=soft", "fake:grey:0.2?name=hard"]
    lens = {"name": "profile", "operators": OPERATORS, "levels": 8}
    out = tmp_path_factory.mktemp("folds") / "run"
    return brinell.run(models, [(image, "light") for image in images], lens=lens, out=out, execution=PLAIN, quiet=True)


# ---- intervals ----


def test_folds_are_those_of_sql(run: brinell.Run) -> None:
    pairs = run.rows(f"select image, {FOLD} from samples").fetchall()
    assert all(fold == fold_of(image) for image, fold in pairs) and len({fold for _, fold in pairs}) > FOLDS // 2


def test_intervals_hold_for_ratios_and_differences() -> None:
    """Two correlated means over 200 images: their ratio, and the difference to a third one."""
    generator, hits = np.random.default_rng(0), np.zeros(2)
    for _ in range(300):
        hard = generator.random((200, 1))
        values = (hard + generator.random((200, 3)) < np.array([0.8, 1.2, 1.0])).astype(float)
        folds = generator.integers(0, FOLDS, 200)
        figures = [
            Replicated(column.mean(), tuple(column[folds != fold].mean() for fold in range(FOLDS))) for column in values.T
        ]
        ratio, gap = figures[0].over(figures[1]).estimate(), figures[2].minus(figures[0])
        truth = 0.32 / 0.68, 0.5 - 0.32
        hits += [one.low <= each <= one.high for one, each in zip((ratio, gap), truth, strict=True)]
    assert (hits / 300 > 0.91).all() and (hits / 300 < 0.985).all(), hits / 300


def test_few_folds_give_no_interval() -> None:
    alone = Replicated(0.5, (0.4,) + (None,) * (FOLDS - 1)).estimate(1)
    assert alone.value == 0.5 and np.isnan(alone.low) and np.isnan(alone.high)
    both = mean_replicated([Replicated(0.2, (0.1, None)), Replicated(0.4, (0.3, 0.5))])
    assert both.value == pytest.approx(0.3) and both.without == (pytest.approx(0.2), None)


# ---- figures ----


def answers(run: brinell.Run, model: str, without: int | None = None) -> dict[str, Any]:
    """Return a model's answers of changed images as arrays (operators, levels, images), all but those of a fold."""
    sql = f"""select image, correct, confidence, probability from rows where model = '{model}' and level > 0
              order by operator, level, image"""
    rows = [row for row in run.rows(sql).fetchall() if fold_of(row[0]) != without]
    columns = [np.array(column).reshape(len(OPERATORS), 8, -1) for column in zip(*rows, strict=True)]
    return {"right": columns[1].astype(float), "confidence": columns[2], "probability": columns[3]}


def figures_by_hand(found: dict[str, Any]) -> dict[str, float]:
    right, confidence = found["right"], found["confidence"].astype(float)
    bins = np.minimum((confidence * 15).astype(int), 14)
    gaps = [np.abs(((confidence - right) * (bins == one)).sum(2)) for one in range(15)]
    return {
        "worst_accuracy": right.mean((1, 2)).min(),
        "ece": (sum(gaps) / right.shape[2]).mean(),
        "brier": ((confidence - right) ** 2).mean(),
        "nll": -np.log(np.maximum(found["probability"].astype(float), 1e-12)).mean(),
    }


def test_figures_with_and_without_a_fold(run: brinell.Run) -> None:
    operators = [f"{name}:published" for name in OPERATORS]
    found = replicate(run, operators)["hard"]
    assert set(TITLES) - set(found) == {"map_clean", "mpc", "rpc", "miou_clean", "miou"}
    fold = fold_of(run.rows("select image from samples limit 1").fetchall()[0][0])
    for name, value in figures_by_hand(answers(run, "hard")).items():
        assert found[name].value == pytest.approx(value, rel=1e-5), name
    for name, value in figures_by_hand(answers(run, "hard", fold)).items():
        assert found[name].without[fold] == pytest.approx(value, rel=1e-5), name


# ---- average precision ----


def scenes(count: int) -> tuple[list[Any], list[Any]]:
    """Return objects of three classes in images, and what a detector found: moved boxes, false ones, and misses."""
    generator = np.random.default_rng(1)
    objects, detections = [], []
    for number in range(count):
        image = image_id(torch.full((3, 8, 8), number, dtype=torch.uint8))
        corners = generator.uniform(0, 200, (4, 2))
        boxes = np.concatenate([corners, corners + generator.uniform(20, 60, (4, 2))], 1)
        labels = generator.integers(0, 3, 4)
        objects.append((image, boxes.tolist(), labels.tolist()))
        moved = (boxes + generator.normal(0, 4, boxes.shape))[generator.random(4) < 0.8]
        kept = np.concatenate([moved, boxes[:2] + 50])
        detections.append(
            (image, kept.tolist(), generator.integers(0, 3, len(kept)).tolist(), generator.random(len(kept)).tolist())
        )
        detections[-1][2][: len(moved)] = labels[: len(moved)].tolist()
    return detections, objects


def test_average_precision_is_that_of_pycocotools() -> None:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    detections, objects = scenes(30)
    annotations = [
        {"id": 1 + 4 * number + place, "image_id": number, "category_id": label, "iscrowd": 0, **_box(box)}
        for number, (_, boxes, labels) in enumerate(objects)
        for place, (box, label) in enumerate(zip(boxes, labels, strict=True))
    ]
    results = [
        {"image_id": number, "category_id": label, "score": score, "bbox": _box(box)["bbox"]}
        for number, (_, boxes, labels, scores) in enumerate(detections)
        for box, label, score in zip(boxes, labels, scores, strict=True)
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        images, classes = [{"id": number} for number in range(30)], [{"id": label} for label in range(3)]
        truth.dataset = {"images": images, "annotations": annotations, "categories": classes, "info": {}}
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(results), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    found = evaluate(detections, objects)
    assert (found.map, found.map50) == pytest.approx((evaluation.stats[0], evaluation.stats[1]), abs=1e-12)
    assert 0.05 < found.map < 0.9


def test_average_precision_without_a_fold_is_that_of_the_others() -> None:
    detections, objects = scenes(30)
    found = evaluate(detections, objects)
    for fold in range(FOLDS):
        rest = [[one for one in each if fold_of(one[0]) != fold] for each in (detections, objects)]
        if len(rest[1]) < 30:
            assert found.without[fold] == pytest.approx(evaluate(*rest).map, abs=1e-12), fold
        else:
            assert found.without[fold] is None


def test_a_detector_has_mpc_and_rpc_with_intervals(run: brinell.Run, tmp_path: Path) -> None:
    """Precision is stored as a run of detectors stores it, next to the rows of this one."""
    import shutil

    import pyarrow as pa

    from brinell.lenses.profile.precision import PRECISION
    from brinell.runs.arrow import arrow_schema

    shutil.copytree(run.folder, tmp_path / "run")
    detections, objects = scenes(30)
    rows = []
    for level in range(9):  # each level loses some of the boxes
        kept = [(image, *(part[: max(1, len(part) - level)] for part in parts)) for image, *parts in detections]
        for operator in OPERATORS:
            rows.append(
                {"model": "soft", "operator": f"{operator}:published", "level": level, **vars(evaluate(kept, objects))}
            )
    table = pa.Table.from_pylist(rows, schema=arrow_schema(PRECISION))
    Store(tmp_path / "run").write_table("precision", table)
    detector = brinell.Run(tmp_path / "run")
    found = detector.summary().robustness["soft"]
    values = [row["map"] for row in rows[:: len(OPERATORS)]]
    assert found.mpc.value == pytest.approx(np.mean(values[1:])) and found.rpc.value == pytest.approx(
        np.mean(values[1:]) / values[0]
    )
    assert 0 < found.mpc.low < found.mpc.value < found.mpc.high < 1 and found.rpc.low < found.rpc.value < found.rpc.high
    assert found.rpc.high - found.rpc.low < (found.mpc.high - found.mpc.low) / found.map_clean.value, (
        "paired with clean images"
    )
    assert "mPC" in str(detector.summary()) and "mPC" in Path(detector.report()).read_text(encoding="utf-8")
    assert detector.to_json()["lenses"]["profile"]["robustness"]["soft"]["mpc"]["low"] > 0
    assert brinell.leaderboard(detector).rows[-1].overall["mpc"] == found.mpc
    numbers = {one.name for one in summarise(detector, detector.found)}
    assert {"soft/mpc", "soft/mpc_low", "soft/rpc_high", "hard/ece", "hard/effective_robustness"} <= numbers


# ---- where they are shown ----


def test_compare_has_figures_over_everything(run: brinell.Run, capsys: pytest.CaptureFixture[str]) -> None:
    main(["compare", run.folder, "--json"])
    records = {one["figure"]: one for one in json.loads(capsys.readouterr().out)["tables"]["overall"]}
    operators = [f"{name}:published" for name in OPERATORS]
    soft, hard = (replicate(run, operators)[model] for model in ("soft", "hard"))
    gap = hard["brier"].minus(soft["brier"])
    assert records["brier"]["change"] == pytest.approx({"value": gap.value, "low": gap.low, "high": gap.high})
    assert records["effective_robustness"]["change"]["value"] == pytest.approx(
        run.summary().robustness["hard"].effective.value
    )
    main(["compare", run.folder])
    printed = capsys.readouterr().out
    assert "Over all degradations" in printed and "calibration error" in printed


def test_the_leaderboard_has_figures_over_everything(run: brinell.Run, capsys: pytest.CaptureFixture[str]) -> None:
    overall = {row.model: row.overall for row in brinell.leaderboard(run).rows}
    assert overall["hard"]["ece"] == run.summary().robustness["hard"].ece
    assert "effective_robustness" in overall["hard"] and "effective_robustness" not in overall["soft"]
    main(["leaderboard", run.folder])
    assert "effective_robustness" in capsys.readouterr().out
