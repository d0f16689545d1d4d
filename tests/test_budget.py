"""Runs under a budget: nested, resumable, independent of how they are carried out; the full run's rows in the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import brinell
from brinell.config.budget import Budget
from brinell.engine.early_stop import Check, _time_left
from brinell.errors import BrinellError
from brinell.lenses.sample import _describe_part, describe_sample
from brinell.validation import validate

PLAIN = brinell.Execution(runtime="torch", batch=4, shard=5)
PROFILE = {"name": "profile", "operators": ["fade_black", "noise", "white_fog"]}


def measure(data: Any, out: Path, budget: Any = None, **options: Any) -> brinell.Run:
    options = {"lens": PROFILE, "execution": PLAIN, "quiet": True, **options}
    return brinell.run("fake:grey", data, out=out, budget=budget, **options)


def tables(run: brinell.Run) -> dict[str, pa.Table]:
    """All rows, file by file, in the order in which they are stored."""
    folder = Path(run.folder)
    return {str(file.relative_to(folder)): pq.read_table(file) for file in sorted(folder.glob("rows/**/*.parquet"))}


def decoded(table: pa.Table, without: tuple[str, ...]) -> pa.Table:
    columns = {
        name: column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
        for name, column in zip(table.column_names, table.columns, strict=True)
        if name not in without
    }
    return pa.table(columns)


def same(one: brinell.Run, other: brinell.Run, without: tuple[str, ...] = ()) -> bool:
    first, second = tables(one), tables(other)
    assert first.keys() == second.keys()
    return all(decoded(first[file], without).equals(decoded(second[file], without)) for file in first)


def forward_passes(run: brinell.Run) -> int:
    [(count,)] = run.rows("select count(*) from rows where level > 0").fetchall()
    return int(count)


# ---- budgets ----


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (0.1, {"share": 0.1}),
        ("0.1", {"share": 0.1}),
        ("10%", {"share": 0.1}),
        ("10 %", {"share": 0.1}),
        (1, {"share": 1}),
        (20000, {"queries": 20000}),
        ("20,000", {"queries": 20000}),
        ("±1%", {"width": 0.01}),
        ("+-0.02", {"width": 0.02}),
        ({"share": 0.5}, {"share": 0.5}),
    ],
)
def test_budgets_are_read(given: Any, expected: dict[str, float]) -> None:
    assert Budget.model_validate(given).model_dump(exclude_none=True) == expected


@pytest.mark.parametrize("given", ["a tenth", "-1", 0, "1.5x", {"share": 2}, {}, "±80%", {"share": 0.1, "queries": 7}])
def test_other_budgets_are_refused_in_a_line(given: Any) -> None:
    with pytest.raises(BrinellError) as refused:
        validate(Budget, given)
    assert "\n" not in str(refused.value)


# ---- laws ----


def test_a_larger_budget_adds_to_a_smaller_one_up_to_the_full_run(greys: Path, tmp_path: Path) -> None:
    full = measure(greys, tmp_path / "full")
    counts, seen = [], set()
    for budget in (0.1, 0.25, 0.8, None):
        run = measure(greys, tmp_path / "grown", budget)
        at_once = measure(greys, tmp_path / f"at-once-{budget}", budget)
        assert same(run, at_once), budget
        cells = set(run.rows("select operator, image, level from rows").fetchall())
        assert seen <= cells
        seen = cells
        counts.append(forward_passes(run))
    assert same(run, full)
    assert counts == sorted(counts) and counts[-1] == forward_passes(full)
    assert counts[0] == pytest.approx(0.1 * counts[-1], rel=0.05)
    assert "budget" not in run.manifest and not run.sampled


LENSES = {
    "knob": {"operators": ["brightness", "gaussian_noise"], "points": 12},
    "highlights": {"cells": 3},
    "geometry": {
        "operators": ["rotation"],
        "methods": ["random", "grid"],
        "draws": 4,
        "radii": [0.3, 0.6],
        "grid_motions": 9,
    },
    "fragility": {"operators": ["all"], "sizes": [0.9], "stride": 2, "beam": 2},
}
OWN = ("seconds", "queries")  # columns that depend on how a run is carried out


def _size(table: pa.Table) -> int:
    """Number of rows, or of the windows that they count."""
    return sum(table["windows"].drop_null().to_pylist()) if "windows" in table.column_names else len(table)


@pytest.mark.parametrize("name", LENSES)
def test_every_lens_grows_to_the_full_run(greys: Path, tmp_path: Path, name: str) -> None:
    data, lens = {"source": greys, "limit": 7}, {"name": name, **LENSES[name]}
    full = measure(data, tmp_path / "full", lens=lens)
    sizes = []
    for budget in (0.2, 0.6, None):
        run = measure(data, tmp_path / "grown", budget, lens=lens)
        assert same(run, measure(data, tmp_path / f"at-once-{budget}", budget, lens=lens), OWN), budget
        sizes.append(sum(_size(table) for table in tables(run).values()))
        assert run.summary().verdict("grey") and json.dumps(run.to_json()) and Path(run.report()).exists()
    assert same(run, full, OWN)
    assert sizes[0] < sizes[1] < sizes[2]


def test_operators_without_rows_are_left_out(greys: Path, tmp_path: Path) -> None:
    """A tenth of 2 images, 5 operators and 2 levels is so little that some operators have none."""
    lens = {"name": "profile", "preset": "quick", "levels": 2}
    data = {"source": str(greys), "labels": "index", "limit": 2}
    run = brinell.run("fake:grey", data, lens=lens, budget=0.1, out=tmp_path / "run", quiet=True)
    measured = {operator for (operator,) in run.query("select distinct operator from rows where level > 0")}
    assert 0 < len(measured) < 5
    assert {area["operator"] for area in run.to_json()["lenses"]["profile"]["areas"]} == measured
    assert Path(run.report()).is_file()


def test_every_row_stores_its_probability(greys: Path, tmp_path: Path) -> None:
    run = measure(greys, tmp_path / "run", 0.15)
    found = run.rows("select image, operator, level, inclusion from rows").fetchall()
    assert {inclusion for *_, level, inclusion in found if level == 0} == {1.0}
    counts: dict[tuple[str, str], list[float]] = {}
    for image, operator, level, inclusion in found:
        if level > 0:
            counts.setdefault((image, operator), []).append(inclusion)
    assert all(set(each) == {len(each) / 30} for each in counts.values())
    assert {len(each) for each in counts.values()} == {4, 5}


@pytest.mark.parametrize("changed", [{"batch": 1}, {"batch": 64}, {"workers": 1}, {"workers": 4}], ids=str)
def test_rows_do_not_depend_on_how_it_is_carried_out(greys: Path, tmp_path: Path, changed: dict[str, int]) -> None:
    plain = measure(greys, tmp_path / "plain", 0.2)
    assert same(plain, measure(greys, tmp_path / "other", 0.2, execution=PLAIN.model_copy(update=changed)))


def test_rows_do_not_depend_on_shards_and_the_order_of_images(greys: Path, tmp_path: Path) -> None:
    ordered = "select * from rows order by operator, image, level"
    plain = measure(greys, tmp_path / "plain", 0.2).rows(ordered).arrow()
    other = PLAIN.model_copy(update={"shard": 3})
    assert measure(greys, tmp_path / "shards", 0.2, execution=other).rows(ordered).arrow().equals(plain)
    shuffled = measure({"source": greys, "shuffle": True}, tmp_path / "shuffled", 0.2)
    assert shuffled.rows(ordered).arrow().equals(plain)


def test_an_interrupted_extension_is_resumed(greys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from brinell.engine import measuring

    run = measure(greys, tmp_path / "run", 0.1)
    write, written = measuring.write_rows, []

    def fail_after_three(*given: Any) -> None:
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(given)
        write(*given)

    monkeypatch.setattr(measuring, "write_rows", fail_after_three)
    with pytest.raises(KeyboardInterrupt):
        measure(greys, tmp_path / "run", 0.4)
    assert not brinell.Run(tmp_path / "run").finished
    monkeypatch.undo()
    run = measure(greys, tmp_path / "run", 0.4)
    assert run.finished and same(run, measure(greys, tmp_path / "at-once", 0.4))


def test_a_smaller_budget_leaves_a_run_as_it_is(greys: Path, tmp_path: Path) -> None:
    run = measure(greys, tmp_path / "run", 0.5)
    times = {file: file.stat().st_mtime_ns for file in (tmp_path / "run").glob("rows/**/*.parquet")}
    again = measure(greys, tmp_path / "run", 0.1)
    assert again.share == run.share == 0.5
    assert times == {file: file.stat().st_mtime_ns for file in (tmp_path / "run").glob("rows/**/*.parquet")}


def test_a_number_of_queries_is_kept_to(greys: Path, tmp_path: Path) -> None:
    run = measure(greys, tmp_path / "run", 300)
    assert 12 + forward_passes(run) == pytest.approx(300, abs=10)
    with pytest.raises(BrinellError, match="the clean images alone take 12 queries"):
        measure(greys, tmp_path / "few", 12)


def test_a_target_width_grows_the_run_until_it_is_reached(greys: Path, tmp_path: Path) -> None:
    run = measure(greys, tmp_path / "run", "±1%")
    assert run.manifest["budget"] == {"share": 0.1, "images": 12, "of": 12, "cells": 0.1}  # all images, a tenth of each
    assert describe_sample(run).startswith("Sampled under a budget: 10% of each image's levels (profile), chosen")
    full = measure(greys, tmp_path / "run")
    assert not full.sampled and same(full, measure(greys, tmp_path / "full"))


def test_the_time_to_a_target_is_estimated() -> None:
    """From how wide the interval is, at the pace so far; all images are enough."""
    images, kept = ["a"] * 100, [None] * 1000
    wide = Check(False, "±4%", times=4.0, target="±2%")
    assert _time_left(wide, images, kept, 0.2) == "; ±2% in about 1:00"  # type: ignore[arg-type]
    assert _time_left(Check(False, "", 400.0, "±1%"), images, kept, 1.0) == "; ±1% in about 15:00"  # type: ignore[arg-type]
    assert _time_left(Check(True, "", 0.9, "±1%"), images, kept, 1.0) == ""  # type: ignore[arg-type]
    assert _time_left(Check(False, "undecided"), images, kept, 1.0) == ""  # type: ignore[arg-type]


def test_a_run_that_stopped_early_names_its_images() -> None:
    budget = {"share": 0.02, "images": 300, "of": 1500, "cells": 0.1}
    assert _describe_part(budget, "levels") == "10% of each image's levels, 300 of 1,500 images"
    assert _describe_part(budget, None) == "300 of 1,500 images"
    assert _describe_part({"share": 0.3, "images": 30, "of": 100}, "spots of light") == "30% of each image's spots of light"


# ---- figures ----


@pytest.mark.slow
def test_areas_are_unbiased(greys: Path, tmp_path: Path) -> None:
    """Over many seeds, the mean of sampled areas is the full area."""
    full = measure(greys, tmp_path / "full", lens={"name": "profile", "operators": ["fade_black"]}).summary()
    [(key, area)] = full.areas.items()
    lens = {"name": "profile", "operators": ["fade_black"]}
    found = [
        measure(greys, tmp_path / str(seed), 0.1, seed=seed, lens=lens).summary().areas[key].value for seed in range(25)
    ]
    assert np.mean(found) == pytest.approx(area.value, abs=3 * np.std(found, ddof=1) / 5)


def test_a_summary_says_what_was_sampled(greys: Path, tmp_path: Path) -> None:
    run = measure(greys, tmp_path / "run", 0.1)
    assert describe_sample(run).startswith("Sampled under a budget: 10% of each image's levels (profile)")
    found = run.summary()
    assert found.smoothed and all(len(points) == 31 for points in found.curves.values())
    assert json.dumps(run.to_json())
    assert "smoothed" in str(found)
    assert "10% of each image" in Path(run.report()).read_text()


# ---- comparison ----


def test_runs_are_compared_at_the_cells_that_both_have(greys: Path, tmp_path: Path) -> None:
    """A sample of a run differs from the full run by nothing, at its own cells."""
    full = measure(greys, tmp_path / "full")
    sample = measure(greys, tmp_path / "sample", 0.2)
    found = brinell.compare(full, sample)
    assert {(delta.old, delta.new) for delta in found.deltas} == {(delta.old, delta.old) for delta in found.deltas}
    assert all(delta.effect.value == 0 and delta.unpaired == (0, 0) for delta in found.deltas)
    assert any("20% of the queries" in note for note in found.pairs[0].notes)
    assert "failure_points" not in found.to_json()["tables"]
    [(area, expected)] = {
        (round(delta.new, 9), round(sample.summary().areas["grey", delta.operator].value, 9))
        for delta in found.deltas
        if delta.measure.name == "area" and delta.operator.startswith("fade_black")
    }
    assert area == expected


def test_gates_and_leaderboards_take_samples(greys: Path, tmp_path: Path) -> None:
    sample = measure(greys, tmp_path / "sample", 0.2)
    rules = {"rules": [{"measure": "area", "operators": "average", "min": 5}, {"measure": "failure_level", "min": 1}]}
    result = brinell.gate(sample, rules)
    assert {check.rule.measure for check in result.checks} == {"area", "failure_level"}
    other = measure(greys, tmp_path / "other", 0.4, lens=PROFILE)
    board = brinell.leaderboard(sample, other)
    first, second = board.rows
    assert first.figures["area"] == second.figures["area"]


def test_the_least_changed_failure_of_a_sample_is_refused(greys: Path, tmp_path: Path) -> None:
    run = measure(greys, tmp_path / "run", 0.2)
    with pytest.raises(BrinellError, match="the least changed failure of an image is unknown"):
        brinell.curate(run, tmp_path / "curated", quiet=True)
    assert brinell.curate(run, tmp_path / "curated", {"every": True}, quiet=True).images > 0
