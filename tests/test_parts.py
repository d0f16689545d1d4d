"""Runs in parts: any number of processes on one folder, in any order, give the rows of one process."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import brinell
from brinell.cli.main import main
from brinell.config.part import PartOfRun, owners, parse_part, scheduled_part
from brinell.engine import measuring
from brinell.engine.parts.tables import shared_table
from brinell.errors import BrinellError
from brinell.runs.parts import PartFile, read_records
from brinell.runs.store import Store
from test_budget import same

PLAIN = brinell.Execution(runtime="torch", batch=4, shard=2)
PROFILE = {"name": "profile", "operators": ["fade_black", "noise"], "levels": 6}


def measure(data: Path, out: Path, part: str | None = None, **options: Any) -> brinell.Run:
    execution = PLAIN.model_copy(update={"part": part})
    return brinell.run("fake:grey", data, out=out, **{"lens": PROFILE, "execution": execution, "quiet": True, **options})


def measure_in_parts(data: Path, out: Path, parts: list[str], **options: Any) -> brinell.Run:
    """Measure parts one after the other; only the last one finishes the run."""
    finished = [measure(data, out, part, **options).finished for part in parts]
    assert finished == [False] * (len(parts) - 1) + [True]
    return brinell.Run(out)


# ---- which part measures what ----


@pytest.mark.parametrize("text", ["", "3", "0/4", "5/4", "1/0", "a/b", "-1/4", "1/4/2"])
def test_parts_that_do_not_exist_are_refused(text: str) -> None:
    with pytest.raises(BrinellError, match="expected a part as i/n"):
        parse_part(text)


@pytest.mark.parametrize("shards", [1, 7, 100, 1000])
@pytest.mark.parametrize("count", [1, 2, 4, 33])
def test_every_shard_has_one_owner_and_parts_are_even(shards: int, count: int) -> None:
    sizes = Counter(owners(shards, count))
    assert sum(sizes.values()) == shards and set(sizes) <= set(range(1, count + 1))
    assert max(sizes.values()) - (min(sizes.values()) if len(sizes) == count else 0) <= 1


def test_owners_are_the_same_on_every_machine() -> None:
    assert owners(8, 3) == (1, 2, 2, 3, 3, 2, 1, 1)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, None),
        ({"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "16", "SLURM_ARRAY_TASK_MIN": "0"}, (4, 16)),
        ({"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "16", "SLURM_ARRAY_TASK_MIN": "1"}, (3, 16)),
        (
            {
                "SLURM_ARRAY_TASK_ID": "7",
                "SLURM_ARRAY_TASK_COUNT": "3",
                "SLURM_ARRAY_TASK_MIN": "3",
                "SLURM_ARRAY_TASK_STEP": "2",
            },
            (3, 3),
        ),
        ({"JOB_COMPLETION_INDEX": "0", "JOB_COMPLETIONS": "8"}, (1, 8)),
        ({"AWS_BATCH_JOB_ARRAY_INDEX": "9", "AWS_BATCH_JOB_ARRAY_SIZE": "10"}, (10, 10)),
        ({"BATCH_TASK_INDEX": "1", "BATCH_TASK_COUNT": "2"}, (2, 2)),
    ],
)
def test_array_jobs_name_their_part(variables: dict[str, str], expected: tuple[int, int] | None) -> None:
    found = scheduled_part(variables)
    assert (None if found is None else (found[0].number, found[0].count)) == expected


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"JOB_COMPLETION_INDEX": "0"}, "JOB_COMPLETIONS, the number of parts, is not"),
        ({"BATCH_TASK_INDEX": "2", "BATCH_TASK_COUNT": "2"}, "is out of range for 2 tasks"),
        ({"BATCH_TASK_INDEX": "x", "BATCH_TASK_COUNT": "2"}, "expected whole numbers"),
    ],
)
def test_array_jobs_that_name_no_part_are_refused(variables: dict[str, str], message: str) -> None:
    with pytest.raises(BrinellError, match=message):
        scheduled_part(variables)


# ---- rows ----


def test_parts_in_any_order_give_the_rows_of_one_process(greys: Path, tmp_path: Path) -> None:
    plain = measure(greys, tmp_path / "plain")
    joint = measure_in_parts(greys, tmp_path / "joint", ["3/4", "1/4", "4/4", "2/4"])
    assert same(plain, joint)
    for table in ("samples", "clean"):
        one, other = (run.store.table(table).replace_schema_metadata(None) for run in (plain, joint))
        assert one.to_pylist() == other.to_pylist()
    assert joint.to_json()["lenses"] == plain.to_json()["lenses"]
    assert all(check.passed for check in joint.verify(4, quiet=True))
    assert "part" not in joint.manifest["source"]["execution"]
    assert sorted(joint.manifest["parts"]) == ["1/4", "2/4", "3/4", "4/4"]
    assert not [path for path in tmp_path.glob("joint/parts/*/*") if path.is_dir()]  # pieces of tables


def test_a_part_that_is_killed_is_rerun(greys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, written = measuring.write_rows, []

    def fail_after_one(*given: Any) -> None:
        if written:
            raise KeyboardInterrupt
        written.append(given)
        write(*given)

    monkeypatch.setattr(measuring, "write_rows", fail_after_one)
    with pytest.raises(KeyboardInterrupt):
        measure(greys, tmp_path / "joint", "1/2")
    monkeypatch.undo()
    assert not measure(greys, tmp_path / "joint", "2/2").finished
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "joint").glob("rows/**/*.parquet")}
    joint = measure(greys, tmp_path / "joint", "1/2")
    assert joint.finished and same(joint, measure(greys, tmp_path / "plain"))
    assert before == {path: path.stat().st_mtime_ns for path in before}  # nothing is measured twice


def test_parts_of_a_budget_give_the_rows_of_that_budget(greys: Path, tmp_path: Path) -> None:
    sampled = measure_in_parts(greys, tmp_path / "joint", ["2/3", "1/3", "3/3"], budget=0.4)
    assert sampled.share == 0.4 and same(sampled, measure(greys, tmp_path / "plain", budget=0.4))
    assert not measure(greys, tmp_path / "joint", "2/2").finished  # all of it, in other parts
    assert brinell.Run(tmp_path / "joint").share == 1.0
    full = measure(greys, tmp_path / "joint", "1/2")
    assert not full.sampled and same(full, measure(greys, tmp_path / "full"))


def test_one_process_finishes_what_parts_have_begun(greys: Path, tmp_path: Path) -> None:
    measure(greys, tmp_path / "joint", "2/5")
    joint = measure(greys, tmp_path / "joint")
    assert joint.finished and same(joint, measure(greys, tmp_path / "plain"))
    assert sorted(joint.manifest["parts"]) == ["1/1", "2/5"]
    assert joint.manifest["seconds"] == pytest.approx(sum(one["seconds"] for one in joint.manifest["parts"].values()))


def test_parts_without_a_shard_do_nothing_and_say_so(greys: Path, tmp_path: Path, capsys: Any) -> None:
    arguments = ["run", "--model", "fake:grey", "--data", str(greys), "--operator", "noise", "--levels", "2"]
    arguments += ["--shard", "12", "--batch", "4", "--runtime", "torch", "--out", str(tmp_path / "joint")]
    main([*arguments, "--part", "2/2"])
    printed = capsys.readouterr()
    assert "part 2 of 2 is done; 1 unit of other parts are missing" in printed.err
    assert "report:" not in printed.out and not (tmp_path / "joint/report.html").exists()


def test_an_array_job_measures_its_part(greys: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "0")
    monkeypatch.setenv("JOB_COMPLETIONS", "2")
    arguments = ["run", "--model", "fake:grey", "--data", str(greys), "--operator", "noise", "--levels", "2"]
    arguments += ["--shard", "6", "--batch", "4", "--runtime", "torch", "--out", str(tmp_path / "joint")]
    main(arguments)
    assert "part 1 of 2 (JOB_COMPLETION_INDEX)" in capsys.readouterr().out
    [record] = read_records(Store(tmp_path / "joint"), next((tmp_path / "joint/parts").iterdir()).name)
    assert (record.number, record.count, record.state) == (1, 2, "done")


def test_runs_that_stop_early_have_no_parts(greys: Path, tmp_path: Path) -> None:
    with pytest.raises(BrinellError, match="leave out --part"):
        measure(greys, tmp_path / "run", "1/2", budget="±5%")


def test_another_run_is_refused_before_and_after_rows(greys: Path, tmp_path: Path) -> None:
    measure(greys, tmp_path / "joint", "1/2")
    with pytest.raises(BrinellError, match="holds another run"):
        measure(greys, tmp_path / "joint", "2/2", seed=1)


# ---- tables that parts make together ----


def test_pieces_that_another_part_has_made_are_not_made_again(tmp_path: Path) -> None:
    made: list[int] = []

    def make(number: int) -> pa.Table:
        made.append(number)
        return pa.table({"number": [number]})

    def collect(part: PartOfRun) -> list[int]:
        return shared_table(PartFile(Store(tmp_path), "run", part), ("parts", "run"), 4, make)["number"].to_pylist()

    assert collect(PartOfRun(3, 4)) == [0, 1, 2, 3] and made == [2, 3, 0, 1]  # its own first
    assert collect(PartOfRun(1, 4)) == [0, 1, 2, 3] and len(made) == 4
    (tmp_path / "parts/run/00001.parquet").write_bytes(b"torn")
    assert collect(PartOfRun(1, 4)) == [0, 1, 2, 3] and made[4:] == [1]


def test_a_damaged_record_costs_nothing(greys: Path, tmp_path: Path) -> None:
    measure(greys, tmp_path / "joint", "1/2")
    [record] = (tmp_path / "joint").glob("parts/*/*.json")
    assert json.loads(record.read_text())["state"] == "done"
    record.write_text("{")
    assert measure(greys, tmp_path / "joint", "2/2").finished
