"""`brinell verify`: complete, undamaged, its own files, and rows that can be measured again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import brinell
from brinell.cli.main import main
from brinell.engine.journal import Journal
from brinell.runs.store import digest_of
from brinell.runs.tables import pack
from conftest import PLAIN

LENSES: list[dict[str, Any]] = [
    {"name": "profile", "operators": ["noise", "fade_black"], "levels": 3},
    {"name": "knob", "operators": ["brightness"]},
    {"name": "fragility", "sizes": [9]},
    {"name": "highlights"},
    {"name": "geometry", "methods": ["random"]},
]


@pytest.fixture
def ran(greys: Path, tmp_path: Path) -> Path:
    data = {"source": str(greys), "labels": "index", "limit": 5}
    brinell.run("fake:grey:0.25", data, lens=LENSES[0], out=tmp_path / "run", execution=PLAIN, quiet=True)
    return tmp_path / "run"


def problems(folder: Path, sample: int = 0) -> dict[str, list[str]]:
    return {check.name: list(check.problems) for check in brinell.Run(folder).verify(sample, quiet=True) if check.problems}


@pytest.mark.parametrize("lens", LENSES, ids=lambda lens: lens["name"])
def test_a_good_run_passes(lens: dict[str, Any], greys: Path, tmp_path: Path) -> None:
    data = {"source": str(greys), "labels": "index", "limit": 5}
    run = brinell.run("fake:grey:0.25", data, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    checks = run.verify(6, quiet=True)
    assert [check.name for check in checks if not check.passed or check.skipped] == [], checks
    assert checks[-1].name == "replay" and not checks[-1].detail.startswith("0 ")


@pytest.mark.parametrize("lens", [lens for lens in LENSES if lens["name"] != "highlights"], ids=lambda lens: lens["name"])
def test_a_good_run_under_a_budget_passes(lens: dict[str, Any], greys: Path, tmp_path: Path) -> None:
    data = {"source": str(greys), "labels": "index", "limit": 6}
    run = brinell.run("fake:grey:0.25", data, lens=lens, out=tmp_path / "run", budget=0.4, execution=PLAIN, quiet=True)
    checks = run.verify(10, quiet=True)
    assert all(check.passed for check in checks) and not checks[-1].detail.startswith("0 "), checks


def test_what_is_wrong_is_found(ran: Path) -> None:
    assert problems(ran) == {}
    files = sorted((ran / "rows").rglob("*.parquet"))
    whole = files[0].read_bytes()
    files[0].write_bytes(whole[:-9])
    assert problems(ran) == {"rows": [f"{files[0]} is damaged"]}
    files[0].unlink()
    assert problems(ran) == {"completeness": ["profile, grey:0.25, fade_black:standard: rows of 0 of 5 images"]} or (
        len(problems(ran)["completeness"]) == 1
    )
    files[0].write_bytes(whole)
    (ran / "manifest.json.123.part").write_bytes(b"x")
    assert problems(ran) == {"manifest against files": [f"{ran}/manifest.json.123.part is half-written"]}
    (ran / "manifest.json.123.part").unlink()
    (ran / "clean.parquet").unlink()
    assert "tables" in problems(ran)


def test_a_run_that_took_long_leaves_nothing_unfinished(
    greys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results of tasks are kept in a journal every 20 seconds: on a busy machine, of a short run, too."""
    monkeypatch.setattr("brinell.engine.journal.EVERY", 0.0)
    written, own = [], Journal.flush
    monkeypatch.setattr(Journal, "flush", lambda self: (own(self), written.append(self._files)))
    data = {"source": str(greys), "labels": "index", "limit": 5}
    lens = {"name": "geometry", "methods": ["random"], "draws": 2}
    brinell.run("fake:grey:0.25", data, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    assert max(written) > 0
    assert problems(tmp_path / "run") == {} and not (tmp_path / "run" / "unfinished").exists()


def test_what_a_killed_process_left_is_removed_by_the_next(greys: Path, ran: Path) -> None:
    row = next((ran / "rows").rglob("*.parquet"))
    names = ("manifest.json.2.part", "profile/map.npz.4.part", "checksums.json.5.part", "precision.parquet.6.part")
    half = [row.with_name(f"{row.name}.1.part"), *(ran / name for name in names)]
    other = ran / "report.html.3.part"  # which another command may be writing
    for path in (*half, other, ran / "unfinished" / "x" / "tasks-0.npz"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    assert problems(ran) == {
        "manifest against files": [
            *(f"{path} is half-written" for path in sorted(map(str, (*half, other)))),
            f"{ran}/unfinished is left over",
        ]
    }
    data = {"source": str(greys), "labels": "index", "limit": 5}
    brinell.run("fake:grey:0.25", data, lens=LENSES[0], out=ran, execution=PLAIN, quiet=True)
    assert problems(ran) == {"manifest against files": [f"{other} is half-written"]}
    assert not (ran / "unfinished").exists()


def test_rows_that_say_something_else_are_found(ran: Path) -> None:
    run = brinell.Run(ran)
    for file in (ran / "rows").rglob("*.parquet"):
        table = pq.ParquetFile(file).read()
        place = table.schema.get_field_index("prediction")
        changed = pa.array([1 - value for value in table["prediction"].to_pylist()], pa.int32())
        file.write_bytes(pack(table.set_column(place, table.schema.field(place), changed), digest_of(run.manifest)))
    found = problems(ran, sample=4)
    assert list(found) == ["replay"] and "prediction was " in found["replay"][0]


def test_the_command(ran: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["verify", str(ran), "--sample", "2"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "passed  finished",
        "passed  tables",
        "passed  rows",
        "passed  pictures",
        "passed  manifest against files",
        "passed  completeness",
        "passed  replay",
    ]
    (ran / "samples.parquet").unlink()
    with pytest.raises(SystemExit) as left:
        main(["verify", str(ran), "--json"])
    assert left.value.code == 1
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert checks[1]["problems"] == [f"{ran}/samples.parquet is missing"]
