"""Test records: what they say, and that one changed byte of anything they rest on is noticed."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import yaml

import brinell
from brinell.cli.main import main
from brinell.run_config import load_config
from test_fingerprints import write_onnx
from test_schema import undeclared

pytest.importorskip("onnx", reason="needs the extra onnx")
ROOT = Path(__file__).parents[1]
PLAN = """
title: Acceptance | test
responsible: Jane <b>Doe</b>
operating_domain: grey images
not_tested: [colour]
require: estimate
requirements:
  - {name: R1, measure: clean, min: 50}
  - {name: R2, measure: accuracy, operators: fade_black, levels: 30, min: 90}
  - {name: R3, measure: accuracy, operators: fade_black, levels: 30, max: 50}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, shared_greys: Path) -> Path:
    """A model, data, a plan, a run and its record, in one folder."""
    import onnx

    folder = tmp_path_factory.mktemp("evidence")
    shutil.copytree(shared_greys, folder / "greys")
    weights = np.zeros((3, 2), np.float32)
    weights[:, 0] = 9.0
    write_onnx(onnx, folder / "net.onnx", weights)
    (folder / "classes.txt").write_text("light\ndark\n")
    (folder / "plan.yaml").write_text(PLAN)
    measure(folder)
    assert record(folder) == 1, "R3 is not met"
    return folder


def measure(folder: Path) -> None:
    model = f"onnx:{folder}/net.onnx?classes={folder}/classes.txt"
    given = ["--data", str(folder / "greys"), "--operator", "fade_black", "--plan", str(folder / "plan.yaml")]
    main(["run", "--model", model, *given, "--out", str(folder / "run")])


def record(folder: Path, name: str = "record", *given: str) -> int:
    plan, out = str(folder / "plan.yaml"), str(folder / name)
    return code_of("evidence", str(folder / "run"), "--plan", plan, "-o", out, *given)


def code_of(*given: str) -> int:
    """Return the exit code of a command."""
    try:
        main(list(given))
    except SystemExit as error:
        return int(error.code or 0)
    return 0


@contextmanager
def changed(file: Path, content: bytes) -> Iterator[None]:
    """Give a file another content for a while."""
    before = file.read_bytes()
    file.write_bytes(content)
    try:
        yield
    finally:
        file.write_bytes(before)


def test_a_record_says_what_was_and_was_not_tested(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads((made / "record" / "record.json").read_text())
    states = [(one["name"], one["state"]) for one in found["requirements"]]
    assert states == [("R1", "passed"), ("R2", "passed"), ("R3", "failed")] and not found["passed"]
    assert found["data"]["labels"] == {"light": 12} and found["models"]["net"].startswith("onnx:")
    assert found["data"]["images"] == found["data"]["used"] == 12 and len(found["hashes"]["data_files"]) == 12
    assert found["not_tested"][0] == "colour" and any("lens: knob" in text for text in found["not_tested"])
    page, text = (made / "record" / "record.html").read_text(), (made / "record" / "record.md").read_text()
    assert "Jane &lt;b&gt;Doe&lt;/b&gt;" in page and "<b>Doe" not in page + text and "Acceptance \\| test" in text
    config = load_config(yaml.safe_load((made / "record" / "config.yaml").read_text()))
    assert config.identity() == load_config(brinell.Run(made / "run").source).identity()
    assert code_of("verify", str(made / "record")) == 0
    assert "failed" not in capsys.readouterr().out


def test_a_record_follows_its_schema(made: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema")
    found = json.loads((made / "record" / "record.json").read_text())
    schema = json.loads((ROOT / "docs" / "schema" / "record-1.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(found)
    assert list(undeclared(found, schema)) == []


def test_a_record_shows_what_breaks_the_model(greys: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    given = ["--data", str(greys), "--labels", "index", "--operator", "fade_black", "--plan", str(tmp_path / "plan.yaml")]
    main(["run", "--model", "fake:grey", *given, "--out", str(tmp_path / "run")])
    assert record(tmp_path) == 1
    page = (tmp_path / "record" / "record.html").read_text()
    assert "What breaks grey most easily" in page
    assert page.count('src="data:image/') == 2 * page.count("<figure>") > 0, "pairs of clean and changed images"


def test_other_code_is_mentioned(made: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A newer brinell may verify an old record; it says that it is another one."""
    monkeypatch.setattr("brinell.evidence.verification.hash_code", lambda: "0" * 64)
    assert code_of("verify", str(made / "record"), "--sample", "0") == 0
    assert "another brinell than the record's" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("weights.bin", "changed since the run (models.net.fingerprint"),
        ("greys/light/03.png", "light/03.png"),
        ("run/rows", ".parquet"),
        ("run/samples.parquet", "samples.parquet"),
        ("record/plan.yaml", "plan.yaml"),
        ("record/record.html", "record.html"),
    ],
)
def test_one_changed_byte_is_named(made: Path, file: str, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = made / file
    path = next(path.rglob("*.parquet")) if path.is_dir() else path
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    with changed(path, bytes(content)):
        assert code_of("verify", str(made / "record"), "--sample", "1") == 1
    printed = capsys.readouterr().out
    assert named in "".join(line for line in printed.splitlines() if "        - " in line), printed


def test_another_plan_is_refused(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with changed(made / "plan.yaml", (PLAN + "data: easier\n").encode()):
        assert record(made, "second") == 2 and "is not the plan that the run" in capsys.readouterr().err
        with pytest.raises(SystemExit):
            measure(made)
    assert "began with another plan" in capsys.readouterr().err


def test_a_run_without_a_plan_is_refused(greys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lens = {"name": "profile", "operators": ["fade_black"], "levels": 2}
    brinell.run("fake:grey:0.25", {"source": str(greys), "labels": "index"}, lens=lens, out=tmp_path / "run", quiet=True)
    (tmp_path / "plan.yaml").write_text(PLAN)
    assert record(tmp_path) == 2
    assert "was measured without a plan" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{name: R1, ", "{", "has no name"),
        ("name: R2", "name: R1", "two requirements are named 'R1'"),
        ("responsible: Jane <b>Doe</b>\n", "", "responsible"),
        ("measure: clean", "measure: cleann", "cleann"),
    ],
)
def test_a_wrong_plan_is_refused_before_the_run(
    old: str, new: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN.replace(old, new))
    given = ["--model", "fake:grey:0.25", "--data", str(tmp_path), "--plan", str(tmp_path / "plan.yaml")]
    assert code_of("run", *given, "--out", str(tmp_path / "run")) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "run").exists()


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
def test_a_signature_is_checked(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = [tmp_path / name for name in ("jane", "other")]
    for key in keys:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
        assert record(made, f"signed by {key.name}", "--sign", str(key)) == 1
    signers = tmp_path / "signers"
    signers.write_text(f"jane@example.com {keys[0].with_suffix('.pub').read_text()}")
    checked = ("--sample", "0", "--signers", str(signers))
    assert code_of("verify", str(made / "signed by jane"), *checked) == 0
    assert "by jane@example.com" in capsys.readouterr().out
    assert code_of("verify", str(made / "signed by other"), *checked) == 1
    assert "by nobody in the list" in capsys.readouterr().out
    assert code_of("verify", str(made / "record"), *checked) == 1
    assert "the record is not signed" in capsys.readouterr().out
