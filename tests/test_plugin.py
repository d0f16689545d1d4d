"""A package that extends brinell: its lens, operator, criterion, model and dataset work like the built-in ones.

The package is tests/plugin, installed in the test environment.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import brinell
from brinell.catalogue import read
from brinell.cli.main import main
from brinell.criteria.criterion import CRITERIA
from brinell.lenses.lens import LENSES
from brinell.perturb.operator import OPERATORS

pytest.importorskip("brinell_mirror", reason="needs the package tests/plugin: pip install --editable tests/plugin")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> brinell.Run:
    """A run of the plugin's lens, on its model and its dataset."""
    folder = tmp_path_factory.mktemp("mirror") / "run"
    return brinell.run("left_or_right:", "bars:6", lens="mirror", out=folder, quiet=True)


def test_its_parts_are_registered() -> None:
    assert "mirror" in LENSES and "scan_lines:every_other" in OPERATORS and "confidently_wrong" in CRITERIA
    assert any(entry.name == "scan_lines" for entries in read().values() for entry in entries)


def test_its_lens_runs_and_finds_what_mirroring_breaks(run: brinell.Run) -> None:
    found = run.summary()
    assert {key[1]: value.value for key, value in found.mirrored.items()} == {"mirror:horizontal": 0, "mirror:vertical": 1}
    assert run.to_json()["lenses"]["mirror"]["verdicts"] == {"left_or_right": found.verdict("left_or_right")}


def test_its_options_are_flags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["run", "--help"])
    assert "--axis" in capsys.readouterr().out
    what = ["--model", "left_or_right:", "--data", "bars:4", "--lens", "mirror", "--axis", "vertical"]
    main(["run", *what, "--out", str(tmp_path / "run")])
    assert brinell.Run(tmp_path / "run").summary().operators == ["mirror:vertical"]


def test_summary_and_report_show_it(run: brinell.Run, capsys: pytest.CaptureFixture[str]) -> None:
    main(["summary", run.folder])
    assert "of the images under mirror:horizontal" in capsys.readouterr().out
    main(["summary", run.folder, "--json"])
    assert list(json.loads(capsys.readouterr().out)["lenses"]) == ["mirror"]
    page = Path(run.report()).read_text(encoding="utf-8")
    assert "Images that mirroring breaks" in page and "data:image/jpeg" in page
    assert run.hardness()["mirror"]["left_or_right"].by_operator["mirror:horizontal"].value == 0
    assert "mirroring: hardness " in page, "it has a hardness like the built-in ones"


def test_runs_of_it_can_be_compared(run: brinell.Run, tmp_path: Path) -> None:
    other = brinell.run("left_or_right:", "bars:6", lens="mirror", out=tmp_path / "other", quiet=True)
    comparison = brinell.compare(run, other)
    assert "mirrored" in {measure.name for measure in comparison.measures(0)}


def test_its_failures_can_be_curated(run: brinell.Run, tmp_path: Path) -> None:
    found = brinell.curate(run, tmp_path / "failures", quiet=True)
    assert found.operators == {"mirror:horizontal": 6} and found.images == 6
    again = brinell.run("left_or_right:", tmp_path / "failures", lens="mirror", out=tmp_path / "again", quiet=True)
    assert again.summary().clean["left_or_right", "mirror:horizontal"].value == 0


def test_its_operator_and_criterion_are_ordinary(tmp_path: Path) -> None:
    lens = {"name": "profile", "operators": ["scan_lines"], "levels": 3, "criterion": "confidently_wrong(0.9)"}
    found = brinell.run("left_or_right:", "bars:4", lens=lens, out=tmp_path / "run", quiet=True)
    assert found.summary().operators == ["scan_lines:every_other"]


def test_listing_it_needs_no_torch() -> None:
    code = "import sys; from brinell.cli.listing import listing; listing('operators'); listing('lenses'); "
    code += "assert 'torch' not in sys.modules, 'torch was imported'"
    subprocess.run([sys.executable, "-c", code], check=True)
