"""How far a run is: from names and times of files and the records of its parts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.status import make_run

from brinell.cli.main import main
from brinell.config.part import owners
from brinell.errors import RunError
from brinell.runs import status
from brinell.runs.parts import settings_digest
from brinell.runs.status import read_status
from brinell.runs.store import Store

UNITS, PARTS = 280 * 8, 4  # 8 shards: two for each part


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run of 20 models and 14 operators, whose last part has one of its two shards."""
    make_run(tmp_path, UNITS, PARTS)
    return tmp_path


def record_of(folder: Path, number: int) -> Path:
    [path] = folder.glob(f"parts/*/part-{number:05d}-of-{PARTS:05d}.json")
    return path


def change(path: Path, **facts: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))


def states(folder: Path) -> list[str]:
    return [part.state for part in read_status(str(folder)).parts]


def test_units_are_counted_by_job_and_by_part(folder: Path) -> None:
    found = read_status(str(folder))
    assert (found.done, found.total, found.finished) == (UNITS - 280, UNITS, False)
    assert [(part.done, part.total) for part in found.parts] == [(560, 560)] * 3 + [(280, 560)]
    assert all(job.done == 98 and job.total == 112 for job in found.jobs) and len(found.jobs) == 20


def test_parts_are_done_measuring_stuck_missing_or_incomplete(folder: Path) -> None:
    assert states(folder) == ["done", "done", "done", "measuring"]
    change(record_of(folder, 4), updated=json.loads(record_of(folder, 4).read_text())["updated"] - 3600)
    record_of(folder, 2).unlink()
    record_of(folder, 3).write_text("{")
    shard = owners(8, PARTS).index(1)
    (folder / f"rows/profile/model0/operator0/{shard:05d}.parquet").unlink()
    assert states(folder) == ["incomplete", "not started", "not started", "stuck"]


def test_rate_and_time_left_come_from_the_latest_units(folder: Path) -> None:
    files = sorted(folder.glob("rows/**/*.parquet"))
    for age, file in enumerate(reversed(files)):
        os.utime(file, (1_000_000 - 2 * age, 1_000_000 - 2 * age))  # one every two seconds
    found = read_status(str(folder), now=1_000_060.0)
    assert found.rate == pytest.approx(0.5) and found.idle == pytest.approx(60)
    assert found.seconds_left == pytest.approx(280 / 0.5)


def test_times_of_old_files_are_not_looked_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which are all but those of the folders that were changed last; the rate is the same."""
    for age, place in enumerate(sorted(folder.glob("rows/*/*/*"), reverse=True)):
        for later, file in enumerate(sorted(place.glob("*.parquet"))):
            os.utime(file, (1_000_000 - 7 * age + later, 1_000_000 - 7 * age + later))  # one every second
        os.utime(place, (1_000_006 - 7 * age, 1_000_006 - 7 * age))
    looked, plain = list[str](), status._time
    monkeypatch.setattr(status, "_time", lambda entry: looked.append(entry.name) or plain(entry))  # type: ignore[func-returns-value]
    found = read_status(str(folder), now=1_000_066.0)
    assert found.rate == pytest.approx(1.0) and found.idle == pytest.approx(60) and found.done == UNITS - 280
    files = [path for path in looked if path.endswith(".parquet")]
    assert status.RECENT <= len(files) <= status.RECENT + 14


def test_a_run_at_a_url_has_the_same_status(folder: Path) -> None:
    store = Store("memory://status/run")
    for path in folder.rglob("*"):
        if path.is_file():
            store.write(path.read_bytes(), *path.relative_to(folder).parts)
    there, here = read_status("memory://status/run"), read_status(str(folder))
    assert there.jobs == here.jobs and [part.done for part in there.parts] == [part.done for part in here.parts]
    store.remove()


def test_a_run_in_one_piece_has_no_parts(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    for record in folder.glob("parts/*/*.json"):
        record.unlink()
    manifest["finished"] = True
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert read_status(str(folder)).parts == () and read_status(str(folder)).seconds_left is None


def test_the_command_prints_and_is_json(folder: Path, capsys: Any) -> None:
    main(["status", str(folder)])
    printed = capsys.readouterr().out
    assert "1,960 of 2,240 units (88%)" in printed and "4/4   measuring  280 of 560" in printed
    assert max(map(len, printed.splitlines()[1:])) <= 80
    main(["status", str(folder), "--json"])
    assert json.loads(capsys.readouterr().out)["done"] == 1960


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="none of its parts has read the images yet"):
        read_status(str(tmp_path))


def test_status_needs_no_torch(folder: Path) -> None:
    code = "import sys\nfrom brinell.cli.main import main\nmain(['status', sys.argv[1]])\n"
    code += "sys.exit(bool({'torch', 'pyarrow'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True, capture_output=True)


def test_the_settings_name_a_run_before_its_images_are_read() -> None:
    identity = {"config": {"seed": 0}, "models": {"a": {}}}
    assert settings_digest(identity) == settings_digest({**identity, "data": {"fingerprint": "x"}})
    assert settings_digest(identity) != settings_digest({**identity, "config": {"seed": 1}})
