"""Damaged files: what can be computed again is, and readers name the file."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import brinell
from brinell.cli.main import main
from brinell.engine import journal
from brinell.engine.journal import Journal
from brinell.engine.progress import Silent
from brinell.runs.schema import Unit
from brinell.runs.store import Store
from brinell.runs.tables import pack, read_parquet
from conftest import PLAIN

DAMAGE = {
    "torn": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "changed": lambda data: data[:60] + bytes(byte ^ 0xFF for byte in data[60:64]) + data[64:],
}


def measure(greys: Path, out: Path, said: list[str] | None = None, **more: Any) -> brinell.Run:
    class Listening(Silent):
        def say(self, text: str) -> None:
            if said is not None:
                said.append(text)

    from brinell.engine.setup import assemble
    from brinell.executing import execute_setup
    from brinell.run_config import load_config

    content = {
        "model": "fake:grey:0.25",
        "data": {"source": str(greys), "labels": "index"},
        "lens": {"name": "profile", "operators": ["noise", "fade_black"], "levels": 3},
        "out": str(out),
        "execution": PLAIN.model_dump(mode="json"),
        **more,
    }
    return execute_setup(assemble(load_config(content)), Listening(), lambda shown: None)


def rows(run: brinell.Run) -> list[Any]:
    return run.rows("select * from rows order by all").fetchall()


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("what", ["rows", "samples", "clean", "exhibits"])
def test_what_is_damaged_is_computed_again(what: str, how: str, greys: Path, tmp_path: Path) -> None:
    before = rows(measure(greys, tmp_path / "run"))
    pattern = {"rows": "rows/**/*.parquet", "exhibits": "exhibits/**/*.webp"}.get(what, f"{what}.parquet")
    file = sorted((tmp_path / "run").glob(pattern))[0]
    whole = file.read_bytes()
    file.write_bytes(DAMAGE[how](whole))
    said: list[str] = []
    assert rows(measure(greys, tmp_path / "run", said)) == before
    (line,) = [line for line in said if " is damaged" in line]
    assert line.startswith(f"{file} is damaged; ")
    assert len(file.read_bytes()) == len(whole)
    said.clear()
    measure(greys, tmp_path / "run", said)
    assert not [line for line in said if " is damaged" in line]


def test_a_damaged_part_of_a_run_under_a_budget_is_measured_again(greys: Path, tmp_path: Path) -> None:
    before = rows(measure(greys, tmp_path / "run", budget=0.5))
    file = sorted((tmp_path / "run").glob("rows/**/*.parquet"))[0]
    file.write_bytes(file.read_bytes()[:50])
    said: list[str] = []
    assert rows(measure(greys, tmp_path / "run", said, budget=0.5)) == before
    assert any(line.startswith(f"{file} is damaged; measuring") for line in said)


@pytest.mark.parametrize("what", ["rows", "clean", "exhibits.json"])
def test_readers_name_the_damaged_file(what: str, greys: Path, tmp_path: Path) -> None:
    measure(greys, tmp_path / "run")
    pattern = {"rows": "rows/**/*.parquet", "clean": "clean.parquet"}.get(what, what)
    file = sorted((tmp_path / "run").glob(pattern))[0]
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(brinell.BrinellError, match=f"{file.name} is damaged; rerun the run's command"):
        brinell.Run(tmp_path / "run").report()


def test_rows_of_another_run_are_refused_and_measured_again(greys: Path, tmp_path: Path) -> None:
    before = rows(measure(greys, tmp_path / "run"))
    store = Store(tmp_path / "run")
    file = Path(store.unit_files()[0])
    unit = store.path()
    table = store._read_parquet(*file.relative_to(unit).parts)
    file.write_bytes(pack(table, "0123456789abcdef"))
    with pytest.raises(brinell.BrinellError, match=f"{file.name} belongs to another run; rerun"):
        brinell.Run(tmp_path / "run").summary()
    said: list[str] = []
    assert rows(measure(greys, tmp_path / "run", said)) == before
    assert any(line.endswith("belongs to another run; measuring this unit again") for line in said)


def test_files_that_rows_refer_to_are_checked(greys: Path, tmp_path: Path) -> None:
    lens = {"name": "fragility", "sizes": [9]}
    measure(greys, tmp_path / "run", lens=lens, data={"source": str(greys), "labels": "index", "limit": 2})
    maps = [path for path in (tmp_path / "run" / "fragility").rglob("*") if path.is_file() and path.suffix != ".json"]
    stored = [path for path in maps if path.suffix not in (".webp",)]
    assert stored
    stored[0].unlink()
    said: list[str] = []
    measure(greys, tmp_path / "run", said, lens=lens, data={"source": str(greys), "labels": "index", "limit": 2})
    assert any(f"{stored[0]} is missing; measuring" in line for line in said)
    assert stored[0].is_file()


@pytest.mark.parametrize("how", DAMAGE)
def test_what_a_damaged_journal_held_is_computed_again(how: str, tmp_path: Path) -> None:
    store, unit = Store(tmp_path), Unit("geometry", "model", "affine:random", 0)
    writing = Journal(store, unit)
    for index in range(2):
        writing.write_done(index, {"score": torch.arange(3.0) + index})
        writing.flush()
    [file] = tmp_path.glob("unfinished/**/tasks-1.npz")
    file.write_bytes(DAMAGE[how](file.read_bytes()))
    again = Journal(store, unit)
    held = again.read_done(0, 3)
    assert held is not None and held["score"].tolist() == [0, 1, 2]
    assert again.read_done(1, 3) is None
    again.write_done(1, {"score": torch.arange(3.0) + 1})
    again.flush()
    whole = Journal(store, unit)
    found = [whole.read_done(index, 3) for index in range(2)]
    assert [one and one["score"].tolist() for one in found] == [[0, 1, 2], [1, 2, 3]]


def test_what_another_version_has_put_into_a_journal_is_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, unit = Store(tmp_path), Unit("geometry", "model", "affine:manifool", 0)
    with monkeypatch.context() as patched:
        patched.setattr(journal, "FORMAT", 1)
        other = Journal(store, unit)
        other.write_done(0, {"products": torch.arange(3.0)})
        other.flush()
    for expected in (None, [5, 5, 5]):
        own = Journal(store, unit)
        held = own.read_done(0, 3)
        assert (held and held["direction"].tolist()) == expected
        own.write_done(0, {"direction": torch.full((3,), 5.0)})
        own.flush()
    own.clear()
    assert not list(tmp_path.glob("unfinished/**/tasks-*"))


def test_a_damaged_manifest_is_named(greys: Path, tmp_path: Path) -> None:
    measure(greys, tmp_path / "run")
    file = tmp_path / "run" / "manifest.json"
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(brinell.BrinellError, match=r"the manifest\.json in .* is not that of a brinell run"):
        measure(greys, tmp_path / "run")


def test_checksums_are_of_every_picture(greys: Path, tmp_path: Path) -> None:
    measure(greys, tmp_path / "run")
    known = json.loads((tmp_path / "run" / "checksums.json").read_bytes())
    pictures = {path.relative_to(tmp_path / "run").as_posix() for path in (tmp_path / "run" / "exhibits").rglob("*.webp")}
    assert pictures and set(known) == pictures | {"exhibits.json"}


@pytest.mark.parametrize("name", ["samples.parquet", "clean.parquet"])
def test_the_command_repairs_what_its_estimate_reads(
    name: str, greys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["run", "--model", "fake:grey:0.25", "--data", str(greys), "--labels", "index", "--operator", "noise",
             "--levels", "2", "--yes", "--out", str(tmp_path / "run")]  # fmt: skip
    main(given)
    file = tmp_path / "run" / name
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    main(given)
    assert f"{name} is damaged; computing it again" in " ".join(capsys.readouterr().err.split())
    assert read_parquet(file.read_bytes()).equals(read_parquet(whole))


def test_every_byte_of_a_table_counts(greys: Path, tmp_path: Path) -> None:
    """Pages, footers, names of columns, statistics, and the checksum itself."""
    run = measure(greys, tmp_path / "run")
    data = next(Path(run.folder, "rows").rglob("*.parquet")).read_bytes()
    assert read_parquet(pack(read_parquet(data), "another run")).equals(read_parquet(data))
    mark = data.rindex(b"checksum")
    for place in {*range(0, len(data), 37), *range(mark - 2, mark + 44)}:
        with pytest.raises(ValueError, match=r"checksum|damaged"):
            read_parquet(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])


def test_tables_of_earlier_versions_are_read() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"x": [1, 2]}), sink, write_page_checksum=True)
    assert read_parquet(sink.getvalue()).num_rows == 2
