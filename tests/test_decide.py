"""Gates that stop as soon as their rules are decided."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import brinell
from brinell.cli.main import main
from brinell.comparison.rules import read_gate
from brinell.comparison.sequential import SequentialCheck, is_decided
from brinell.errors import BrinellError
from brinell.runs.statistics import Estimate

LENS = {"name": "profile", "operators": ["noise"]}


@pytest.fixture(scope="module")
def digits(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """400 digits of the test set, as arrays."""
    with np.load(assets / "images" / "mnist_test.npz") as file:
        names = list(file.keys())
        content = {name: file[name][:400] for name in names}
    out = tmp_path_factory.mktemp("digits") / "digits.npz"
    np.savez(out, **content)
    return out


@pytest.fixture
def models(assets: Path) -> list[str]:
    """A network that noise breaks less, and one that it breaks more."""
    return [f"onnx:{assets}/models/mnist_lenet5_{name}.onnx" for name in ("clean", "robust")]


def decide(models: list[str], data: Path, rules: dict[str, Any], out: Path, **options: Any) -> Any:
    options = {"lens": LENS, "quiet": True, **options}
    return brinell.decide(models, str(data), rules, out=out, **options)


def rule(**content: Any) -> Any:
    return read_gate({"rules": [{"measure": "area", **content}]})


@pytest.mark.parametrize(
    ("content", "low", "high", "state"),
    [
        ({"drop": 1}, -0.009, 0.02, "passed"),
        ({"drop": 1}, -0.029, 0.02, "passed"),  # within the margin of 2 points
        ({"drop": 1}, -0.031, 0.02, "untested"),
        ({"drop": 1}, -0.2, -0.011, "failed"),
        ({"drop": 1}, -0.013, -0.013, "passed"),  # between what is allowed and the margin: by the nearer one
        ({"drop": 1}, -0.025, -0.025, "failed"),
        ({"min": 50}, 0.5, 0.6, "passed"),
        ({"min": 50}, 0.49, 0.6, "untested"),
        ({"min": 50}, 0.3, 0.49, "failed"),
        ({"max": 50}, 0.51, 0.6, "failed"),
    ],
)
def test_a_rule_is_decided_by_its_interval(content: dict[str, Any], low: float, high: float, state: str) -> None:
    [one] = rule(**content).rules
    check = SequentialCheck(one, "new", "noise", Estimate((low + high) / 2, low, high), 100, margin=2.0)
    assert check.state == state


@pytest.mark.slow
def test_a_clear_drop_is_found_early_and_a_rerun_measures_nothing(digits: Path, models: list[str], tmp_path: Path) -> None:
    rules = {"rules": [{"measure": "area", "operators": "noise", "drop": 1}]}
    result = decide(models, digits, rules, tmp_path / "run")
    run = brinell.Run(tmp_path / "run")
    assert not result.passed and is_decided(result)
    assert run.manifest["budget"]["images"] < 400 and run.manifest["budget"]["cells"] == 0.1
    full = brinell.run(models, str(digits), lens=LENS, out=tmp_path / "full", quiet=True)
    gains = brinell.compare(full).select(0, "area")
    [check] = result.checks
    assert check.estimate.low <= gains[0].effect.value / 100 <= check.estimate.high
    files = {file: file.stat().st_mtime_ns for file in (tmp_path / "run").glob("rows/**/*.parquet")}
    again = decide(models, digits, rules, tmp_path / "run")
    assert again.to_json() == result.to_json()
    assert files == {file: file.stat().st_mtime_ns for file in (tmp_path / "run").glob("rows/**/*.parquet")}
    grown = brinell.run(models, str(digits), lens=LENS, out=tmp_path / "run", quiet=True)  # the same folder, in full
    columns = "model, operator, image, level, correct, confidence, inclusion"
    assert (
        grown.rows(f"select {columns} from rows order by all").fetchall()
        == full.rows(f"select {columns} from rows order by all").fetchall()
    )


@pytest.mark.slow
def test_a_better_model_passes(digits: Path, models: list[str], tmp_path: Path) -> None:
    rules = {"rules": [{"measure": "area", "drop": 1}, {"measure": "clean", "drop": 1}]}
    result = decide(models[::-1], digits, rules, tmp_path / "run", margin=3.0)
    assert result.passed and {check.state for check in result.checks} == {"passed"}


@pytest.mark.slow
def test_a_target_width_is_reached_with_some_of_the_images(digits: Path, models: list[str], tmp_path: Path) -> None:
    run = brinell.run(models[:1], str(digits), lens=LENS, out=tmp_path / "run", budget="±4%", quiet=True)
    full = brinell.run(models[:1], str(digits), lens=LENS, out=tmp_path / "full", quiet=True)
    assert run.manifest["budget"]["images"] < 400
    [(_, found)] = run.summary().average_areas.items()
    [(_, truth)] = full.summary().average_areas.items()
    assert abs(found.value - truth.value) <= 0.04


def test_the_command_prints_checks_and_exits_with_1(
    digits: Path, models: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gate.yaml").write_text("rules:\n  - {measure: area, operators: noise, drop: 1}\n")
    given = [arg for model in models for arg in ("--model", model)]
    given += ["--data", str(digits), "--operator", "noise", "--out", str(tmp_path / "run"), "--yes"]
    given += ["--rules", str(tmp_path / "gate.yaml"), "--junit", str(tmp_path / "gate.xml")]
    with pytest.raises(SystemExit) as left:
        main(["decide", *given])
    assert left.value.code == 1
    shown = " ".join("".join(capsys.readouterr()).split())
    assert "under noise may not get significantly worse by more than 1 point" in shown
    assert "of 400 images and" in shown
    assert 'failures="1"' in (tmp_path / "gate.xml").read_text()
    with pytest.raises(SystemExit):
        main(["decide", *given, "--json"])
    assert json.loads(capsys.readouterr().out)["passed"] is False


def test_a_target_width_needs_a_share(digits: Path, models: list[str], tmp_path: Path) -> None:
    lens = {"name": "geometry", "operators": ["translation"], "methods": ["grid"], "grid_motions": 9}
    with pytest.raises(BrinellError, match="a target width needs a figure per image, and geometry has none here"):
        brinell.run(
            models[:1], {"source": str(digits), "limit": 40}, lens=lens, out=tmp_path / "run", budget="±4%", quiet=True
        )


def test_what_cannot_be_decided_early_is_refused(digits: Path, models: list[str], tmp_path: Path) -> None:
    with pytest.raises(BrinellError, match="a rule about failure_level can't be decided while images are measured"):
        decide(models, digits, {"rules": [{"measure": "failure_level", "min": 3}]}, tmp_path / "run")
    with pytest.raises(BrinellError, match="needs two models"):
        decide(models[:1], digits, {"rules": [{"measure": "area", "drop": 1}]}, tmp_path / "run")
    brinell.run(models, str(digits), lens=LENS, out=tmp_path / "sampled", budget=0.05, quiet=True)
    with pytest.raises(BrinellError, match="this folder has a share of every image"):
        decide(models, digits, {"rules": [{"measure": "area", "drop": 1}]}, tmp_path / "sampled")
