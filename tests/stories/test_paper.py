"""Looking for a paper's figure: accuracy by level under the degradations of Swingler (2022), as they were published."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from story import ROOT, Story

import brinell

pytest.importorskip("onnxruntime", reason="needs onnxruntime: make test-all")

PAPER = json.loads((ROOT / "fidelity" / "published.json").read_text(encoding="utf-8"))["accuracy"]["EfficientNetB0"]
OPERATORS = ("jpeg", "adjacent_exchange")


@pytest.mark.slow
def test_a_paper_s_figure(assets: Path, tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    photos.mkdir()
    records = (assets / "images" / "imagenet_dev_300" / "metadata.jsonl").read_text().splitlines()[:16]
    (photos / "metadata.jsonl").write_text("\n".join(records))
    for record in map(json.loads, records):
        shutil.copy(assets / "images" / "imagenet_dev_300" / record["file_name"], photos)
    (tmp_path / "lite0.onnx").symlink_to(assets / "models" / "efficientnet_lite0.onnx")

    story = Story("a paper's figure", tmp_path)
    assert "swingler2022" in story.type("brinell ls presets")
    operators = " ".join(f"--operator {name}" for name in OPERATORS)
    told = story.type(
        "brinell run --preset swingler2022 --model 'onnx:lite0.onnx?classes=imagenet' --data photos/ "
        f"{operators} --out runs/paper",
        attempt=True,
    )
    story.type("brinell report runs/paper --figures")
    story.correct()
    assert "JPEG" in told

    run = brinell.Run(tmp_path / "runs" / "paper")
    findings = run.summary()
    assert {operator for _, operator in findings.curves} == {f"{name}:published" for name in OPERATORS}
    for name in OPERATORS:
        (curve,) = (points for (_, operator), points in findings.curves.items() if operator == f"{name}:published")
        ours = np.array([point.accuracy.value for point in curve])
        theirs = np.array(PAPER[name])
        assert len(ours) == len(theirs) == 31
        assert abs(ours.mean() / ours[0] - theirs.mean() / theirs[0]) < 0.15, f"{name}: the share of accuracy that is kept"
    figures = {file.name for file in (tmp_path / "runs" / "paper" / "figures").iterdir()}
    assert {"lite0-accuracy.svg", "lite0-accuracy.png"} <= figures, figures
    story.record()
