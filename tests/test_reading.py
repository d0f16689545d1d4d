"""Reading results: sentences claim no more than intervals support, and tables fit a terminal of 80 columns."""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import brinell
from brinell.cli.main import main
from brinell.comparison.pairing import shorten_folders
from brinell.config.data import name_sequence
from brinell.engine.notebook import in_notebook
from brinell.engine.progress import reporter
from brinell.perturb.operator import OPERATORS
from brinell.perturb.property import PROPERTIES
from brinell.report.grid import Grid, to_html, to_text
from brinell.run_config import load_config, name_data
from brinell.runs.ranking import Extremes, find_extremes, is_clear
from brinell.runs.statistics import Estimate, overlap
from brinell.runs.words import format_mean, format_share, join_names, list_tied, note_few
from brinell.units import format_amount, singular

RUNS = Path(__file__).parent / "golden" / "runs"
NAMES = sorted(path.name for path in RUNS.iterdir() if path.is_dir())
NAN = math.nan
PERCENT = re.compile(r"\d%(?! \[| *confident)")

# ---- words ----


def test_a_share_comes_with_its_interval() -> None:
    assert format_share(Estimate(0.36, 0.12, 0.68)) == "36% [12–68%]"
    assert format_share(Estimate(0.016, 0.0, 0.043)) == "1.6% [0.0–4.3%]"
    assert format_share(Estimate(1, NAN, NAN)) == "100%" and format_share(Estimate(NAN, NAN, NAN)) == "–"
    assert format_share(Estimate(0.22, 0.22, 0.22)) == "22%", "equal values are not certainty"
    assert format_mean(Estimate(38, 0, 390)) == "38 [0–390]"
    assert format_mean(Estimate(1.02, 0.8, 1.24), ".2f") == "1.02 [0.80–1.24]"


def test_names_and_ties() -> None:
    assert join_names(["a"]) == "a" and join_names(["a", "b", "c"]) == "a, b and c"
    assert join_names(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert list_tied(["a"], "1") == "a (1)" and list_tied(["a", "b", "c"], "1") == "a (1), tied with b and c"
    assert note_few(1) == " Only one image was tested." and note_few(29, "scene") == " Only 29 scenes were tested."
    assert note_few(30) == ""


def test_intervals_that_overlap() -> None:
    low, high = Estimate(0.1, 0.0, 0.2), Estimate(0.5, 0.3, 0.7)
    assert not overlap(low, high) and not overlap(high, low) and overlap(low, Estimate(0.3, 0.2, 0.4))
    assert overlap(low, Estimate(0.9, NAN, NAN)), "nothing is known without an interval"


# ---- rankings ----


def ranked(**values: list[float]) -> Extremes:
    """The extremes of lists of values, one per image."""
    records = [(name, str(image), value) for name, own in values.items() for image, value in enumerate(own)]
    names, images, numbers = zip(*records, strict=True)
    connection = duckdb.connect()
    connection.register("given_values", pa.table({"name": names, "image": images, "value": numbers}))
    run: Any = SimpleNamespace(query=lambda sql, given: connection.execute(sql, given).fetchall())
    return find_extremes(run, "select 'm' as owner, name, image, value from given_values")["m"]


def test_only_a_clear_extreme_stands_alone() -> None:
    images = [0.1 * (image % 7) for image in range(40)]  # images differ far more than operators do
    found = ranked(low=images, middle=[x + 0.05 for x in images], high=[x + 0.1 for x in images])
    assert found == Extremes(("low",), ("high",)), "paired by image, a small difference is clear"
    assert found.separate() == (("low",), ("high",))
    noisy = [x + (0.3 if image % 2 else -0.29) for image, x in enumerate(images)]
    found = ranked(low=images, noisy=noisy, high=[x + 0.5 for x in images])
    assert found == Extremes(("low", "noisy"), ("high",))


def test_ties_are_ties_in_alphabetical_order() -> None:
    found = ranked(b=[0.92] * 50, a=[0.92] * 50, c=[0.92] * 50)
    assert found == Extremes(("a", "b", "c"), ("a", "b", "c")) and found.separate() is None


def test_a_name_that_ties_with_both_ends_is_at_neither() -> None:
    assert Extremes(("a", "b"), ("c", "b")).separate() == (("a",), ("c",))


def test_a_few_images_that_agree_are_not_certain() -> None:
    assert ranked(a=[0.0] * 3, b=[1.0] * 3).separate() is None
    assert ranked(a=[0.0] * 8, b=[1.0] * 8).separate() == (("a",), ("b",))
    assert not is_clear(50, 0.0, 0.0, 0.0)


def test_values_without_a_common_image_can_t_be_told_apart() -> None:
    assert ranked(a=[0.0] * 40 + [NAN] * 0, b=[1.0]).separate() is None


# ---- tables ----

WIDE = Grid(("operator", *(f"figure {n}" for n in range(8))), (("jpeg", *["86.1%\n[72–95%]"] * 8),), "m", "A note.")


@pytest.mark.parametrize("width", [20, 60, 80, 200])
def test_no_width_cuts_a_value(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table is stacked where it does not fit."""
    monkeypatch.setenv("COLUMNS", str(width))
    shown = to_text([WIDE, "A verdict."])
    assert "…" not in shown and shown.count("86.1%") == shown.count("[72–95%]") == 8
    assert max(map(len, shown.splitlines())) <= width
    assert ("figure 7: 86.1% [72–95%]" in " ".join(shown.split())) == (width < 100)


def test_a_table_in_a_notebook() -> None:
    shown = to_html([Grid(("a", "b"), (("<x>", "1\n2"),), "t"), "no <b>"])
    left, right = "style='text-align: left'", "style='text-align: right'"
    assert shown == (
        f"<table><caption>t</caption><thead><tr><th {left}>a</th><th {right}>b</th></tr></thead>"
        f"<tbody><tr><th {left}>&lt;x&gt;</th><td {right}>1<br>2</td></tr></tbody></table><p>no &lt;b&gt;</p>"
    )


# ---- recorded runs ----


@pytest.mark.parametrize("name", NAMES)
def test_recorded_runs_fit_80_columns(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(RUNS)
    for words in (["summary", name], ["rows", name]):
        main(words)
        shown = capsys.readouterr().out
        assert "…" not in shown and max(map(len, shown.splitlines())) <= 80, words


@pytest.mark.parametrize("name", NAMES)
def test_every_share_in_a_verdict_has_its_interval(name: str) -> None:
    """Except thresholds, a detector's average precision, and amounts."""
    for lens, found in brinell.Run(RUNS / name).found.items():
        for model in found.models:
            text = re.sub(r"Its mAP .*?\(without intervals\)", "", found.verdict(model))
            text = re.sub(r"(below|than|change) \d+% (at|even|of its labels)|\(\d+% of|, \d+% of pixels", "", text)
            assert not PERCENT.search(re.sub(r"\[[^]]*\]", "[]", text)), (lens, text)
            assert "…" not in str(found) and "Estimate(" not in str(found)


@pytest.mark.parametrize(
    "words", [["ls", "operators"], ["ls", "lenses"], ["ls", "models"], ["ls", "datasets"], ["ls", "criteria"]]
)
def test_lists_fit_80_columns(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    main(words)
    shown = capsys.readouterr().out
    assert not re.search(r"\d…", shown) and max(map(len, shown.splitlines())) <= 80


# ---- rows ----

PROFILE, KNOB = RUNS / "imagenet-profile", RUNS / "cifar-knob-exact"


def test_rows_are_shown_for_people(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns with values alone, class names with their numbers, image names, amounts with units."""
    monkeypatch.setenv("COLUMNS", "200")
    main(["rows", str(PROFILE)])
    shown = capsys.readouterr().out
    assert "efficientnet_lite0" in shown and "bull mastiff (243)" in shown and "imagenet_00_243.jpg" in shown
    assert "exchanges" in shown and "detected_boxes" not in shown and "direction" not in shown and "NULL" not in shown
    main(["rows", str(PROFILE), "--columns", "operator,label,mse"])
    assert capsys.readouterr().out.split()[:3] == ["operator", "label", "mse"]
    main(["rows", str(KNOB), "select status, count(*) as images from rows group by all order by all"])
    assert capsys.readouterr().out.split()[:2] == ["status", "images"]


def test_columns_that_don_t_fit_are_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    main(["rows", str(KNOB)])
    shown = " ".join(capsys.readouterr().out.split())
    assert "more columns have values: " in shown and "severity. Select them in the SQL, or with --columns." in shown
    with pytest.raises(SystemExit):
        main(["rows", str(KNOB), "--columns", "operater"])
    assert "error: the result has no column 'operater'; did you mean operator?" in capsys.readouterr().err


def test_files_hold_everything_as_it_is_stored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = brinell.Run(KNOB)
    [(count,)] = run.rows("select count(*) from rows").fetchall()
    main(["rows", str(KNOB), "--csv", str(tmp_path / "rows.csv"), "--parquet", str(tmp_path / "rows.parquet")])
    table = pq.read_table(tmp_path / "rows.parquet")
    assert table.num_rows == count > 20 and table.column_names == run.rows().columns
    assert len((tmp_path / "rows.csv").read_text().splitlines()) == count + 1
    main(["rows", str(KNOB), "--json"])
    records = json.loads(capsys.readouterr().out)
    assert len(records) == count and list(records[0]) == table.column_names


def test_a_data_frame_needs_pandas_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = brinell.Run(KNOB).rows("select model, label from rows limit 3")
    assert rows.arrow().num_rows == len(rows.fetchall()) == 3
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    remedy = r"which is not installed: pip install (pandas|polars); .arrow\(\) and .fetchall\(\) work without"
    for method in (rows.df, rows.to_polars):
        with pytest.raises(brinell.RunError, match=remedy):
            method()


def test_rows_show_themselves() -> None:
    rows = brinell.Run(PROFILE).rows("select operator, label, amount from rows order by all limit 30")
    assert "The first 20 rows." in repr(rows) and "bull mastiff (243)" in repr(rows)
    assert rows._repr_html_().count("<tr>") == 21 and not hasattr(rows, "_repr_mimebundle_")


# ---- units ----


@pytest.mark.parametrize(
    ("amount", "unit", "text"),
    [
        (1, "passes of a 5×5 blur", "1 pass of a 5×5 blur"),
        (12, "passes of a 5×5 blur", "12 passes of a 5×5 blur"),
        (1, "values per channel", "1 value per channel"),
        (1, "grey levels at most", "1 grey level at most"),
        (1, "boxes", "1 box"),
        (1, "px rms", "1 px rms"),
        (225, "% white", "2.25 × white"),
        (75, "% less contrast", "75 % less contrast"),
        (1.5, "×", "1.5×"),
        (3.2, "sigma", "sigma 3.2 px"),
        (7, "quality", "quality 7"),
        (1, "geodesic score", "geodesic score 1"),
        (4480, "blurred boxes", "4,480 blurred boxes"),
    ],
)
def test_amounts_read_well(amount: float, unit: str, text: str) -> None:
    assert format_amount(amount, unit) == text


def test_no_unit_is_odd() -> None:
    """At any level: no two numbers in a row, no more than 100 %, no plural after 1."""
    shown = [
        format_amount(change.facts.amount(level, 224, 224), change.unit)
        for change in OPERATORS.values()
        for level in (1, 2, 10, 30)
    ]
    for change in PROPERTIES.values():
        track = change.tracks(224, 224)[0]
        amounts = change.amounts(track[:: max(1, len(track) // 5)], 224, 224)
        shown += [format_amount(float(amount), change.unit) for amount in amounts]
    odd = [text for text in shown if re.search(r"^[\d,.]+ \d|^1\d\d+ %|^[2-9]\d\d+ %|^1 \w+s\b(?<!ss)", text)]
    assert odd == []


def test_flags_are_in_the_singular() -> None:
    assert [singular(word) for word in ("axes", "radii", "boxes", "sizes", "methods", "class")] == [
        *("axis", "radius", "box", "size", "method", "class")
    ]


def test_titles_name_runs_and_not_paths() -> None:
    assert shorten_folders(["/data/runs/old", "/data/runs/new"]) == ["old", "new"]
    assert shorten_folders(["/a/runs/first/", "/b/runs/first"]) == ["a/runs/first", "b/runs/first"]
    assert shorten_folders(["s3://bucket/x", "runs/x"]) == ["bucket/x", "runs/x"]


# ---- notebooks ----


class Subset:
    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset


def test_a_list_is_named_for_people() -> None:
    assert [name_sequence(items) for items in ([], (), np.zeros(3))] == ["images"] * 3
    assert name_sequence(Subset([])) == "Subset of images" and name_sequence(SimpleNamespace(name="birds")) == "birds"
    config, _ = name_data([1, 2])
    folder = load_config({"model": "fake:grey", "data": config}).folder()
    assert re.fullmatch(r"runs/profile-images-[0-9a-f]{8}", folder)


def test_progress_in_a_notebook_is_one_output_and_nothing_red(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """IPython's display machinery is all that it needs; a kernel is simulated by its shell."""
    shown: list[tuple[str, dict[str, str]]] = []

    def display(content: dict[str, str], *, raw: bool, display_id: bool) -> Any:
        assert raw and display_id
        shown.append(("new", content))
        return SimpleNamespace(update=lambda content, raw: shown.append(("update", content)))

    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    with reporter() as progress:
        progress.say("run: <here>")
        advance = progress.stage("profile", 4, "images")
        for _ in range(4):
            advance(1)
    assert [how for how, _ in shown].count("new") == 1 and capsys.readouterr().err == ""
    last = shown[-1][1]
    assert "<div>run: &lt;here&gt;</div>" in last["text/html"] and "<progress max='4' value='4'>" in last["text/html"]
    assert last["text/plain"].startswith("run: <here>\nprofile: 4 of 4, ")
    with reporter(quiet=True) as progress:
        progress.say("nothing")
    assert shown[-1][1] is last


def test_a_terminal_shell_of_ipython_is_no_notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: SimpleNamespace()))
    assert not in_notebook()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: None))
    assert not in_notebook()


# ---- the same every time ----


@pytest.mark.parametrize("name", NAMES)
def test_a_summary_is_the_same_every_time(name: str) -> None:
    """Ties are in a fixed order, and sums are added up in one."""
    first, second = (json.dumps(brinell.Run(RUNS / name).to_json()) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("name", ["cifar-profile", "cifar-knob-exact", "imagenet-several", "detector"])
def test_comparisons_fit_80_columns(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shutil.copytree(RUNS / name, tmp_path / "new")
    monkeypatch.chdir(tmp_path)
    for command in ("compare", "leaderboard"):
        main([command, str(RUNS / name), "new"])
        shown = capsys.readouterr().out
        assert not re.search(r"\d…", shown) and max(map(len, shown.splitlines())) <= 80, command
        assert str(RUNS) not in shown, "titles name runs, not paths"
