"""Segmenters compared: mean IoU of two models over the same images, with paired intervals."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import brinell
import shapes
from brinell.lenses.profile.replicates import replicate
from brinell.runs.folds import fold_of
from conftest import PLAIN

OPERATORS = ["fade_black", "local_blur"]


def blurred() -> brinell.Model:
    """The same segmenter with weights that were disturbed."""
    net = copy.deepcopy(shapes.learned())
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(1)
        net.head.weight += 0.5 * torch.randn(net.head.weight.shape)
    given: dict[str, Any] = {"size": shapes.SIDE, "classes": shapes.CLASSES, "interpolation": "bilinear"}
    return brinell.wrap(net, name="disturbed", segmentation=True, execution=PLAIN, **given)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> brinell.Run:
    folder = tmp_path_factory.mktemp("compared")
    data = shapes.folder(folder / "data", 24)
    lens = {"name": "profile", "operators": OPERATORS, "levels": 3}
    models = [shapes.segmenter(), blurred()]
    return brinell.run(models, data, lens=lens, out=folder / "run", execution=PLAIN, quiet=True)


def miou_by_hand(run: brinell.Run, model: str, without: int | None = None) -> tuple[float, float]:
    """The mean IoU of clean images and under change, with plain loops over rows."""
    sums: dict[tuple[str, int], dict[int, np.ndarray]] = {}
    sql = "select operator, level, image, mask_classes, mask_common, mask_union from rows where model = ?"
    for operator, level, image, *masks in run.connection.execute(sql, [model]).fetchall():
        if fold_of(image) == without:
            continue
        cell = sums.setdefault((operator, level), {})
        for label, common, union in zip(*masks, strict=True):
            cell[label] = cell.get(label, np.zeros(2)) + np.array([common, union])
    means = {key: np.mean([common / union for common, union in cell.values()]) for key, cell in sums.items()}
    clean = [value for (_, level), value in means.items() if level == 0]
    return float(np.mean(clean)), float(np.mean([value for (_, level), value in means.items() if level > 0]))


def test_mean_iou_has_an_interval_over_images(run: brinell.Run) -> None:
    operators = [name for (name,) in run.query("select distinct operator from rows")]
    fold = fold_of(run.query("select image from samples limit 1")[0][0])
    for model in ("shapes", "disturbed"):
        found = replicate(run, operators)[model]
        assert (found["miou_clean"].value, found["miou"].value) == pytest.approx(miou_by_hand(run, model))
        without = found["miou_clean"].without[fold], found["miou"].without[fold]
        assert without == pytest.approx(miou_by_hand(run, model, fold))
        assert "ece" not in found, "the share of pixels that a class has is no probability"
    findings: Any = run.findings()["profile"]
    estimate = findings.robustness["shapes"].miou
    assert 0 < estimate.low < estimate.value < estimate.high < 1
    assert "mIoU, under change" in str(run.summary())


def test_compare_says_what_became_of_mean_iou(run: brinell.Run) -> None:
    comparison = brinell.compare(run)
    (overall,) = [table for table in comparison.tables[0] if table.name == "overall"]
    records = {record["figure"]: record for record in overall.records}
    for name, place in (("miou_clean", 0), ("miou", 1)):
        old, new = (miou_by_hand(run, model)[place] for model in ("shapes", "disturbed"))
        assert (records[name]["old"], records[name]["new"]) == pytest.approx((old, new))
        change = records[name]["change"]
        assert change["value"] == pytest.approx(new - old) and change["low"] < change["value"] < change["high"]
    assert records["miou_clean"]["change"]["high"] < 0, "it is clearly worse"
    assert any(row[0] == "mIoU, clean" and row[-1] == "worse" for row in overall.rows)


def test_the_iou_of_images_is_compared_in_pairs(run: brinell.Run) -> None:
    comparison = brinell.compare(run)
    for delta in comparison.select(0, "iou"):
        if delta.operator == "average":
            continue
        sql = "select image, avg(iou) from rows where model = ? and operator = ? and level > 0 group by 1 order by 1"
        old, new = (
            np.array([value for _, value in run.connection.execute(sql, [model, delta.operator]).fetchall()])
            for model in ("shapes", "disturbed")
        )
        assert delta.images == 24
        assert (delta.old, delta.new) == pytest.approx((old.mean(), new.mean()))
        assert delta.effect.value == pytest.approx(100 * (new - old).mean())
        assert delta.effect.low < delta.effect.value < delta.effect.high
    assert comparison.select(0, "iou"), "segmenters have it"


def test_classifiers_are_not_compared_by_iou(tmp_path: Path) -> None:
    lens = {"name": "profile", "operators": ["fade_black"], "levels": 2}
    images = [(np.full((8, 8, 3), grey, np.uint8), int(grey > 127)) for grey in range(0, 250, 25)]
    run = brinell.run(
        ["fake:grey", "fake:grey?name=other"], images, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True
    )
    assert "iou" not in {measure.name for measure in brinell.compare(run).measures(0)}
