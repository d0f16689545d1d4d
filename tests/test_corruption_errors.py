"""Figures over corruptions, computed from rows in NumPy: mCE, worst cases, effective robustness, calibration, groups."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import brinell
from brinell.lenses.profile.robustness import ALEXNET, ALEXNET_CLEAN, measure_effective


class Brightest(nn.Module):
    """Says which third of the image is brightest, and is unsure in noise."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.stack([part.mean((1, 2, 3)) for part in images.tensor_split(3, 3)], 1) * self.scale


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> brinell.Run:
    generator = torch.Generator().manual_seed(3)
    data = []
    for index in range(12):
        image = torch.randint(60, 120, (3, 32, 33), generator=generator, dtype=torch.uint8)
        image[:, :, 11 * (index % 3) : 11 * (index % 3) + 11] += 8 + 3 * (index // 3)
        data.append((image.permute(1, 2, 0).numpy(), index % 3))
    models = [brinell.wrap(Brightest(scale), name=name, size=(32, 33)) for scale, name in ((9.0, "first"), (3.0, "second"))]
    return brinell.run(
        models,
        data,
        lens={"name": "profile", "preset": "imagenet_c"},
        out=tmp_path_factory.mktemp("runs") / "c",
        quiet=True,
    )


def rows(run: brinell.Run, model: str) -> np.ndarray:
    """Return whether answers are right, (operators, levels, images)."""
    names = list(ALEXNET)
    found = run.rows(
        f"select operator, level, image, correct from rows where model = '{model}' order by image, level"
    ).fetchall()
    images = sorted({image for _, _, image, _ in found})
    right = np.zeros((len(names), 6, len(images)))
    for operator, level, image, correct in found:
        right[names.index(operator), level, images.index(image)] = correct
    return right


@pytest.mark.parametrize("model", ["first", "second"])
def test_corruption_errors_are_relative_to_alexnet(run: brinell.Run, model: str) -> None:
    wrong = 1 - rows(run, model)
    published = np.array(list(ALEXNET.values()))
    errors = wrong[:, 1:].mean((1, 2)) / published
    relative = (wrong[:, 1:].mean((1, 2)) - wrong[:, 0].mean(1)) / (published - ALEXNET_CLEAN)
    found = run.summary().robustness[model]
    assert found.mce.value == pytest.approx(errors.mean())
    assert found.relative_mce.value == pytest.approx(relative.mean())
    assert [found.errors[name].value for name in ALEXNET] == pytest.approx(errors)
    assert found.mce.low < found.mce.value < found.mce.high
    right = 1 - wrong
    assert found.accuracy.value == pytest.approx(right[:, 1:].mean())
    assert found.worst.value == pytest.approx(right[:, 1:].mean((1, 2)).min())
    assert found.always.value == pytest.approx(right.min((0, 1)).mean())


def test_effective_robustness_is_what_the_baseline_does_not_explain(run: brinell.Run) -> None:
    found = run.summary().robustness
    assert found["first"].effective is None and found["second"].baseline == "first"
    one, other = rows(run, "first"), rows(run, "second")
    values = [np.stack([each[:, 1:].mean((0, 1)), each[:, 0].mean(0)], 1) for each in (one, other)]
    assert found["second"].effective.value == pytest.approx(measure_effective(*values).value)
    assert measure_effective(values[0], values[0]).value == pytest.approx(0)
    generator = np.random.default_rng(0)
    truth, hits = 0.7 - 1 / (1 + np.exp(-(np.log(0.6 / 0.4) + np.log(0.9 / 0.1) - np.log(0.8 / 0.2)))), 0
    for _ in range(200):
        drawn = generator.random((300, 1)) < np.array([[0.6, 0.8, 0.7, 0.9]])
        estimate = measure_effective(drawn[:, :2].astype(float), drawn[:, 2:].astype(float))
        hits += estimate.low <= truth <= estimate.high
    assert hits >= 180, "a 95 % interval that misses more often than one in ten"


def test_calibration_is_that_of_the_answers(run: brinell.Run) -> None:
    found = {(one.model, one.operator, one.level): one for one in run.summary().calibration}
    assert len(found) == 2 * 15 * 6
    sql = """
        select confidence, probability, correct from rows
        where model = 'second' and operator = 'fog:imagenet_c' and level = 3
    """
    confidence, probability, correct = (np.array(each, float) for each in zip(*run.rows(sql).fetchall(), strict=True))
    bins = np.minimum((confidence * 15).astype(int), 14)
    gap = sum(abs((confidence - correct)[bins == one].sum()) for one in range(15)) / len(correct)
    point = found["second", "fog:imagenet_c", 3]
    assert point.ece.value == pytest.approx(gap)
    assert point.brier.value == pytest.approx(((confidence - correct) ** 2).mean())
    assert point.nll.value == pytest.approx(-np.log(probability).mean(), rel=1e-5)
    assert point.brier.low < point.brier.value < point.brier.high


def test_classes_and_images_that_suffer_most(run: brinell.Run) -> None:
    affected = run.summary().affected["second"]
    right = rows(run, "second")
    assert len(affected.most) == 3 and affected.most[0].lost >= affected.most[-1].lost
    assert sum(group.images for group in affected.most) == 12
    kept = right[:, 1:].mean((0, 1))[right[:, 0].min(0) == 1]
    assert affected.images[0][1] == pytest.approx(kept.min())


def test_figures_reach_every_reader(run: brinell.Run, tmp_path: Path) -> None:
    assert "mCE" in str(run.summary())
    content = json.loads(json.dumps(run.summary().to_json()))
    assert content["robustness"]["first"]["mce"]["value"] > 0 and content["calibration"] and content["affected"]
    names = {name for _, _, _, figures in run.summary().figures() if isinstance(figures, dict) for name in figures}
    assert {"mce", "relative_mce", "corruption_error", "ece", "brier", "nll", "effective_robustness"} <= names
    board = brinell.leaderboard(run.folder)
    assert "ce" in board.rows[0].figures
    assert "mCE" in Path(run.report()).read_text()
