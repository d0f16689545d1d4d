"""Figures per slice: where metadata comes from, how images are divided, and every place that shows it."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import brinell
from brinell.cli.main import main
from brinell.datasets.columns import find_metadata
from brinell.datasets.sources import open_dataset
from brinell.errors import ConfigError, DataError
from brinell.runs.slices import Slice, find_slices, read_columns, select_columns, slice_values
from brinell.runs.statistics import mean
from brinell.tracking.figures import summarise
from conftest import PLAIN

COUNT = 48
LENS = {"name": "profile", "operators": ["fade_black", "fade_white"], "levels": 12}


def facts_of(index: int) -> dict[str, Any]:
    """Return the metadata of an image: images of the night are darker, so that they break first."""
    return {
        "time": "night" if index < COUNT // 2 else "day",
        "exposure": round(0.5 + index / 10, 2),
        "flash": index % 3 == 0,
    }


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of known mean grey with metadata."""
    folder = tmp_path_factory.mktemp("slices") / "photos"
    folder.mkdir()
    noise = np.random.default_rng(0)
    lines = []
    for index in range(COUNT):
        values = 80 + 3 * index + noise.integers(-20, 21, (20, 24, 3))
        Image.fromarray(np.clip(values, 0, 255).astype(np.uint8)).save(folder / f"{index:02d}.png")
        lines.append({"file_name": f"{index:02d}.png", "label": "light", "author": f"p{index}", **facts_of(index)})
    (folder / "metadata.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder


@pytest.fixture(scope="module")
def run(data: Path) -> brinell.Run:
    """Two models; a lower threshold stands more darkness."""
    models = ["fake:grey:0.3?name=soft", "fake:grey:0.2?name=hard"]
    return brinell.run(models, data, lens=LENS, out=data.parent / "run", execution=PLAIN, quiet=True)


# ---- where metadata comes from ----


def test_facts_that_are_no_slices_are_left_out() -> None:
    facts = {
        "file_name": "a.png",
        "label": "cat",
        "author": "x",
        "note": "y" * 300,
        "sizes": [1],
        "empty": "",
        "dark": True,
    }
    nested = {"attributes": {"weather": "fog"}, "speed": 2.5, "lanes": np.int64(3)}
    assert find_metadata({**facts, **nested}) == {"dark": "yes", "weather": "fog", "speed": "2.5", "lanes": "3"}


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl", "coco", "npy", "webdataset"])
def test_every_kind_of_data_has_metadata(data: Path, tmp_path: Path, kind: str) -> None:
    rows = [json.loads(line) for line in (data / "metadata.jsonl").read_text().splitlines()][:3]
    for row in rows:
        shutil.copy(data / row["file_name"], tmp_path)
    samples: Any
    if kind == "coco":
        images = [{"id": n, "width": 24, "height": 20, **row, "date_captured": "x"} for n, row in enumerate(rows)]
        content = {"images": images, "annotations": [], "categories": [{"id": 1, "name": "light"}]}
        (tmp_path / "instances.json").write_text(json.dumps(content))
        samples = open_dataset(tmp_path)
    elif kind == "npy":  # in Python, as MAITE has it
        samples = open_dataset([(np.zeros((9, 9, 3), np.uint8), 0, {"id": n, **facts_of(n)}) for n in range(3)])
    elif kind == "webdataset":
        with tarfile.open(tmp_path / "x.tar", "w") as shard:
            for number, row in enumerate(rows):
                (tmp_path / f"{number}.json").write_text(json.dumps(row))
                shard.add(tmp_path / row["file_name"], f"{number}.png")
                shard.add(tmp_path / f"{number}.json", f"{number}.json")
        samples = open_dataset(tmp_path / "x.tar")
    else:
        file = tmp_path / f"metadata.{kind}"
        if kind == "parquet":
            pq.write_table(pa.Table.from_pylist(rows), file)
        elif kind == "csv":
            lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
            file.write_text("\n".join(lines))
        else:
            file.write_text("\n".join(map(json.dumps, rows)))
        samples = open_dataset(tmp_path)
    found = samples[1].metadata
    assert (found["time"], found["exposure"]) == ("night", "0.6") and set(found) == {"time", "exposure", "flash"}


def test_a_table_adds_metadata_to_class_folders(greys: Path, tmp_path: Path) -> None:
    table = tmp_path / "facts.csv"
    table.write_text(
        "file_name,weather\n" + "\n".join(f"light/{index:02}.png,{'fog' if index < 4 else 'sun'}" for index in range(12))
    )
    options = {"source": str(greys), "labels": "prediction", "metadata": str(table)}
    lens = {**LENS, "levels": 3}
    run = brinell.run("fake:grey:0.25", options, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    assert {len(images) for images in find_slices(run, Slice("weather"), "grey:0.25").values()} == {4, 8}
    table.write_text("path,weather\n" + "\n".join(f"{index:02}.png,rain" for index in range(12)))  # corrected later
    again = brinell.run("fake:grey:0.25", options, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    assert set(slice_values(again, "weather", "grey:0.25").values()) == {"rain"}
    table.write_text("path,weather\nother.png,rain")
    with pytest.raises(DataError, match=r"no row for the first image, 'light/00\.png'"):
        brinell.run("fake:grey:0.25", options, lens=lens, out=tmp_path / "other", execution=PLAIN, quiet=True)


# ---- how images are divided ----


def test_columns_of_numbers_are_divided_at_quartiles(run: brinell.Run) -> None:
    columns = read_columns(run)
    assert sorted(select_columns(columns)) == ["exposure", "flash", "time"]
    parts = find_slices(run, Slice("exposure"), "soft")
    assert [str(one) for one in parts] == [
        f"exposure={each}" for each in ("0.5 to 1.7", "1.7 to 2.9", "2.9 to 4", "4 to 5.2")
    ]
    assert sum(map(len, parts.values())) == COUNT and all(abs(len(part) - COUNT / 4) <= 1 for part in parts.values())
    assert list(find_slices(run, Slice("class"), "soft")) == [Slice("class", "light")]


def test_unknown_slices_are_named(run: brinell.Run) -> None:
    with pytest.raises(ConfigError, match="no metadata column 'tim'; did you mean time"):
        find_slices(run, Slice("tim"), "soft")
    with pytest.raises(ConfigError, match="no image has time=nigth; did you mean time=night"):
        find_slices(run, Slice("time", "nigth"), "soft")
    with pytest.raises(ConfigError, match="expected a slice as COLUMN"):
        Slice.parse("=x")


# ---- figures ----


def expected(run: brinell.Run, model: str, value: str) -> Any:
    """Return the accuracy under change of a slice, image by image in plain Python."""
    sql = f"""select avg(correct::int) filter (level > 0), samples.name from rows join samples using (image)
              where model = '{model}' and metadata['time'] = '{value}' group by all"""
    kept = [each for each, _ in run.rows(sql).fetchall()]
    return mean(float(np.mean(kept)), float(np.std(kept, ddof=1)), len(kept), most=1)


def test_summary_and_json_have_each_slice(run: brinell.Run, capsys: pytest.CaptureFixture[str]) -> None:
    affected = run.to_json()["lenses"]["profile"]["affected"]["soft"]
    most = affected["slices"]["time"][0]
    wanted = expected(run, "soft", "night")
    assert (most["name"], most["images"]) == ("night", COUNT // 2)
    assert [most["accuracy"][key] for key in ("value", "low", "high")] == pytest.approx(
        [wanted.value, wanted.low, wanted.high]
    )
    assert most["worst"] == "00.png" and affected["images"][0][0] == "00.png"
    main(["summary", run.folder])
    printed = capsys.readouterr().out
    assert "soft by slice" in printed and "time=night" in printed and "exposure=0.5 to 1.7" in printed


def test_the_report_has_each_slice(run: brinell.Run) -> None:
    page = Path(run.report()).read_text(encoding="utf-8")
    assert "By time" in page and "By exposure" in page and "night" in page


def test_tracked_figures_have_each_slice(run: brinell.Run) -> None:
    numbers = {one.name: one.value for one in summarise(run, run.found)}
    wanted = expected(run, "hard", "night")
    assert numbers["hard/slice/time/night"] == pytest.approx(wanted.value)
    assert numbers["hard/slice/time/night_low"] == pytest.approx(wanted.low)


# ---- decisions ----


def test_compare_has_each_slice(run: brinell.Run) -> None:
    comparison = brinell.compare(run)
    records = comparison.to_json()["tables"]["slices"]
    [night] = [one for one in records if (one["measure"], one["slice"]) == ("area", "night")]
    sql = """select model, avg(area) from (select model, image, operator, avg(correct::int) as area from rows
             join samples using (image) where metadata['time'] = 'night' group by all) group by all"""
    areas = dict(run.rows(sql).fetchall())
    assert (night["old"], night["new"]) == pytest.approx((areas["soft"], areas["hard"]))
    assert night["effect"]["value"] == pytest.approx(100 * (areas["hard"] - areas["soft"]))
    assert night["effect"]["low"] < night["effect"]["value"] < night["effect"]["high"] and night["verdict"] == "better"


def test_compare_shows_slices(run: brinell.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["compare", run.folder, "-o", str(tmp_path / "c.html"), "--markdown", str(tmp_path / "c.md")])
    for text in (capsys.readouterr().out, *(file.read_text(encoding="utf-8") for file in sorted(tmp_path.iterdir()))):
        assert "By time" in text and "night" in text


def test_a_gate_limits_slices(run: brinell.Run) -> None:
    rule = {
        "measure": "area",
        "operators": "average",
        "models": "soft",
        "slices": "time",
        "min": "50 %",
        "require": "estimate",
    }
    checks = brinell.gate(run, {"rules": [rule]}, store=False).checks
    assert [check.to_json()["slice"] for check in checks] == ["time=day", "time=night"]
    day, night = (check.to_json()["value"] for check in checks)
    whole = brinell.gate(run, {"rules": [{**rule, "slices": []}]}, store=False).checks[0].to_json()["value"]
    assert night < whole < day and (day + night) / 2 == pytest.approx(whole)
    limited = {**rule, "slices": ["time=night"], "min": f"{100 * (night + whole) / 2} %"}
    result = brinell.gate(run, {"rules": [limited]}, store=False)
    assert not result.passed and "time=night" in result.failed[0].finding
    with pytest.raises(ConfigError, match="not measured image by image"):
        brinell.gate(run, {"rules": [{"measure": "failure_level", "slices": "time", "min": 3}]}, store=False)


def test_a_gate_limits_drops_of_slices(run: brinell.Run) -> None:
    comparison = brinell.compare(run, pairs=["hard=soft"])
    rule = {"measure": "area", "operators": "average", "slices": "time", "drop": 1}
    checks = brinell.gate(comparison, {"rules": [rule]}).checks
    records = [
        one for one in comparison.to_json()["tables"]["slices"] if (one["measure"], one["column"]) == ("area", "time")
    ]
    for check, record in zip(checks, records, strict=True):
        found = check.to_json()
        assert found["slice"] == f"time={record['slice']}"
        assert found["effect"]["value"] == pytest.approx(record["effect"]["value"])
        assert found["adjusted"] == pytest.approx(record["adjusted"])
    assert any(check.state == "failed" for check in checks)


def test_a_leaderboard_of_a_slice(run: brinell.Run, capsys: pytest.CaptureFixture[str]) -> None:
    board = brinell.leaderboard(run, slice="time=night")
    [soft] = [row for row in board.rows if row.model == "soft"]
    assert board.images["area"] == COUNT // 2 and board.to_json()["slice"] == "time=night"
    whole = next(row for row in brinell.leaderboard(run).rows if row.model == "soft")
    assert soft.figures["area"].value < whole.figures["area"].value
    main(["leaderboard", run.folder, "--slice", "time"])
    printed = capsys.readouterr().out
    assert "time=day" in printed and "time=night" in printed
    main(["leaderboard", run.folder, "--slice", "time", "--json"])
    assert [one["slice"] for one in json.loads(capsys.readouterr().out)] == ["time=day", "time=night"]


def test_images_without_metadata_have_no_slices(tmp_path: Path) -> None:
    data = [(torch.full((3, 20, 24), 100 + index, dtype=torch.uint8), "light") for index in range(12)]
    models = ["fake:grey:0.3?name=soft", "fake:grey:0.2?name=hard"]
    run = brinell.run(models, data, lens={**LENS, "levels": 3}, out=tmp_path / "run", execution=PLAIN, quiet=True)
    assert "slices" not in brinell.compare(run).to_json()["tables"]
    assert run.to_json()["lenses"]["profile"]["affected"]["soft"]["slices"] == {}
