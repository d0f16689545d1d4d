"""Estimates of a run's cost: what is counted, what a probe measures, and what is asked before a long run."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import brinell
from brinell.api import open_setup
from brinell.cli.main import main
from brinell.engine.estimates import plan as planning
from brinell.engine.estimates import probe as pace
from brinell.engine.estimates.plan import Cost, Plan, plan, plan_run
from brinell.engine.estimates.text import budget_table, cheaper_line, estimate_line, format_time, rounded
from brinell.engine.evaluator import Evaluator
from brinell.engine.runner import execute
from brinell.engine.setup import RunSetup
from brinell.lenses.method import Trials
from conftest import PLAIN

GIVEN = ["--model", "fake:grey:0.25", "--operator", "fade_black", "--levels", "5", "--runtime", "torch", "--batch", "4"]


@pytest.fixture
def always_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probe even runs that take less than a second, for long enough to see every change."""
    monkeypatch.setattr(planning, "SHORT", 0.0)


def passes_of(run: brinell.Run) -> int:
    """The trials of a run whose rows count queries, and its two passes over the clean images."""
    ((trials, images),) = run.rows("select sum(queries), count(distinct image) from rows").fetchall()
    return int(trials + 2 * images)


# ---- probes ----


@pytest.mark.usefixtures("always_probed")
@pytest.mark.parametrize("search", ["exact", "bracket"])
def test_a_search_is_estimated_from_a_probe_instead_of_its_worst_case(search: str, greys: Path, tmp_path: Path) -> None:
    lens = {"name": "knob", "operators": ["brightness", "fog", "rotation"], "search": search}
    setup = open_setup("fake:grey:0.25", greys, {"lens": lens, "out": tmp_path / "run"}, PLAIN)
    (cost,) = plan(setup).costs
    assert not (tmp_path / "run").exists()
    found = passes_of(brinell.Run(execute(setup).folder))
    worst = cost.trials + 2 * cost.images
    assert found / 1.5 < cost.forward_passes < found * 1.5, (found, cost.forward_passes, worst)
    assert not cost.most and cost.forward_passes < worst


@pytest.mark.usefixtures("always_probed")
def test_a_search_that_does_not_end_in_time_is_an_upper_bound(greys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((planning, "SHORTEST_PROBE"), (planning, "LONGEST_PROBE"), (pace, "SHORTEST")):
        monkeypatch.setattr(module, name, 1e-3)
    lens = {"name": "knob", "operators": ["rotation"]}
    (cost,) = plan(open_setup("fake:grey:0.25", greys, {"lens": lens}, PLAIN)).costs
    assert cost.most and cost.forward_passes == cost.trials + 2 * cost.images


@pytest.mark.usefixtures("always_probed")
def test_a_lens_that_is_no_search_makes_all_its_trials(greys: Path) -> None:
    lens = {"name": "profile", "operators": ["boxes", "jpeg", "gradient_descent"], "levels": 6}
    (cost,) = plan(open_setup("fake:grey:0.25", greys, {"lens": lens}, PLAIN)).costs
    assert cost.forward_passes == 12 * (3 * 6 + 2) and cost.gradients == 12 * 6
    assert not cost.most and cost.seconds > 0


@pytest.mark.usefixtures("always_probed")
def test_images_that_can_t_be_used_are_left_to_the_run(tmp_path: Path) -> None:
    (tmp_path / "light").mkdir()
    (tmp_path / "light" / "a.png").write_bytes(b"")
    (cost,) = plan(open_setup("fake:grey", tmp_path, {"lens": "knob"}, PLAIN)).costs
    assert cost.most


def test_a_short_run_is_not_probed(greys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("it was probed")

    monkeypatch.setattr(planning, "probing", refuse)
    assert plan(open_setup("fake:grey", greys, {"lens": {"name": "profile", "levels": 1}}, PLAIN)).seconds > 0


def test_a_short_run_of_motions_is_expected_to_take_longer_than_its_forward_passes(greys: Path) -> None:
    lens = {"name": "geometry", "operators": ["rotation"], "methods": ["random"], "draws": 2}
    setup = open_setup("fake:grey:0.25", greys, {"lens": lens}, PLAIN)
    (work,) = planning._works(setup, planning.jobs_of(setup), list(range(12)))
    assert work.rate is not None and work.seconds == pytest.approx(3 * work.passes / work.rate)


def test_manifool_is_sketched_with_fewer_targets(greys: Path) -> None:
    (job,) = planning.jobs_of(
        open_setup("fake:grey:0.25", greys, {"lens": {"name": "geometry", "operators": ["rotation"]}}, PLAIN)
    )
    assert job.method.sketch is not None and job.options.targets == 10
    assert job.method.sketch(job.options, 5.0).targets == 2 and job.method.sketch(job.options, 100.0).targets == 1


# ---- what is left ----


def test_a_resumed_run_is_estimated_by_what_is_left(greys: Path, tmp_path: Path) -> None:
    lens = {"name": "profile", "operators": ["boxes", "noise"], "levels": 6}
    setup = open_setup("fake:grey:0.25", greys, {"lens": lens, "out": tmp_path / "run"}, PLAIN)
    whole = plan_run(setup)
    assert whole is not None
    execute(setup)
    assert plan_run(setup) is None
    for file in (tmp_path / "run" / "rows").glob("*/*/noise*/*.parquet"):
        file.unlink()
    left = plan_run(setup)
    assert left is not None and left.costs[0].trials == whole.costs[0].trials / 2


# ---- words ----


def cost(**changed: Any) -> Cost:
    given: dict[str, Any] = {
        "lens": "knob", "model": "net", "operators": 2, "images": 100, "trials": 90_000, "rows": 400,
        "forward_passes": 41_234, "gradients": 0, "images_per_second": 4.0, "seconds": 10_000.0, "most": False,
    }  # fmt: skip
    return Cost(**{**given, **changed})


def test_an_estimate_is_one_line() -> None:
    assert estimate_line(Plan("runs/x", (cost(),))) == "Estimate: about 2.8 h, 41,000 forward passes, 0.1 MB."
    two = Plan("runs/x", (cost(), cost(lens="profile", seconds=60, most=True)))
    assert estimate_line(two).startswith("Estimate: at most 2.8 h, 82,000 forward passes (knob 2.8 h, profile 60 s)")
    service = cost(queries=4_100, price=0.01, currency="USD", seconds=0.0, images_per_second=None, most=True)
    assert estimate_line(Plan("runs/x", (service,))) == (
        "Estimate: as long as the service takes, at most 4,100 queries for 41.00 USD (at 0.01 USD each), 0.1 MB."
    )


def test_an_estimate_from_few_searches_is_rough() -> None:
    assert estimate_line(Plan("runs/x", (cost(rough=True),))).startswith("Estimate: roughly 2.8 h, ")
    assert estimate_line(Plan("runs/x", (cost(rough=True, most=True),))).startswith("Estimate: at most 2.8 h, ")


@pytest.mark.usefixtures("always_probed")
def test_a_probe_that_saw_few_searches_end_says_so(greys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lens = {"name": "knob", "operators": ["fog"]}
    setup = open_setup("fake:grey:0.25", greys, {"lens": lens}, PLAIN)
    assert not plan(setup).costs[0].rough
    monkeypatch.setitem(pace.IMAGES, "cpu", 2)
    assert plan(setup).costs[0].rough


def test_budgets_are_a_table() -> None:
    plan = Plan("runs/x", (cost(cells=30), cost(lens="profile"), cost(model="other", cells=30)))
    heads, *rows = budget_table(plan)
    assert heads == ("budget", "time", "passes", "knob", "profile")
    assert [row[0] for row in rows] == ["0.03", "0.1", "0.3", "all"]
    assert rows[-1] == ("all", "about 8.3 h", "120,000", "±4.9", "±4.9")
    knob, profile = ([float(row[column][1:]) for row in rows] for column in (3, 4))
    assert knob == sorted(knob, reverse=True) and profile == sorted(profile, reverse=True)
    assert knob[1] < 1.2 * knob[-1] < profile[1], "where images are chosen, a tenth of the queries is a tenth of the images"
    service = cost(queries=4_100, seconds=0.0, images_per_second=None, most=True)
    assert budget_table(Plan("runs/x", (service,)))[2][1:3] == ("as long as the service takes", "500")
    assert budget_table(Plan("runs/x", (cost(trials=0),))) == []


def test_the_cheaper_command_is_one_line() -> None:
    long = Plan("runs/x", (cost(),))
    words = {"preset": "--preset quick", "limit": "--limit {}"}
    assert cheaper_line(long, None, **words) == "That is more than an hour. Cheaper: --limit 36 (about 60 min)."
    quick = Plan("runs/x", (cost(seconds=240.0),))
    assert "Cheaper: --preset quick (about 4 min) or --limit 36" in cheaper_line(long, quick, **words)
    assert "--preset quick" not in cheaper_line(long, long, **words), "it would save nothing"
    endless = Plan("runs/x", (cost(seconds=1e6),))
    assert cheaper_line(endless, None, **words) == "That is more than an hour.", "as is each of its images"


def test_numbers_for_people() -> None:
    assert [rounded(count) for count in (7, 99, 123, 41_234)] == [7, 99, 120, 41_000]
    assert [format_time(seconds) for seconds in (0.1, 60, 600, 7_200, 1e6)] == [
        *("1 s", "60 s", "10 min", "2.0 h", "12 days")
    ]


# ---- asking ----


@pytest.fixture
def long(greys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with `greys`, in which every run takes more than an hour."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("brinell.engine.estimates.text.HOUR", 1e-9)
    return tmp_path


def answer(text: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer on a terminal, or have none."""
    monkeypatch.setattr("brinell.cli.ask.someone_answers", lambda: text is not None)
    monkeypatch.setattr("sys.stdin", io.StringIO(text or ""))


@pytest.mark.parametrize(("text", "flags"), [("y\n", []), ("", ["--yes"]), (None, [])])
def test_a_long_run_starts_if_someone_says_so_or_nobody_can(
    text: str | None, flags: list[str], long: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(text, monkeypatch)
    main(["run", *GIVEN, "--data", "greys", "--out", "first", *flags])
    printed = capsys.readouterr().err
    assert "Estimate: about 1 s, 84 forward passes, 0.1 MB." in printed and "That is more than an hour." in printed
    assert ("Start?" in printed) == (text == "y\n")
    assert brinell.Run("first").finished


def test_a_long_run_that_is_declined_leaves_nothing(
    long: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answer("n\n", monkeypatch)
    with pytest.raises(SystemExit) as left:
        main(["run", *GIVEN, "--data", "greys", "--out", "first"])
    assert left.value.code == 1 and capsys.readouterr().err.endswith("Nothing was run.\n")
    assert not (long / "first").exists()


def test_python_never_asks(long: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    answer("", monkeypatch)
    lens = {"name": "profile", "operators": ["fade_black"], "levels": 5}
    assert brinell.run("fake:grey:0.25", "greys", lens=lens, execution=PLAIN, out="first").finished
    assert "Estimate: about 1 s" in capsys.readouterr().err
    brinell.run("fake:grey:0.25", "greys", lens=lens, execution=PLAIN, out="second", quiet=True)
    assert capsys.readouterr().err == ""


# ---- batches ----


BATCHES: list[int] = []  # sizes of all batches so far, in any thread
BATCH = 0.05  # seconds


class Clocked(nn.Module):
    """Scores by brightness; a batch takes `BATCH` seconds, whatever its size."""

    def forward(self, images: Tensor) -> Tensor:
        BATCHES.append(len(images))
        light = images.mean((1, 2, 3))[:, None] - 0.25
        return torch.cat([-light, light], 1) * 8


def clocked_setup(greys: Path, out: Path, search: str) -> RunSetup:
    execution = PLAIN.model_copy(update={"batch": 8})
    model = brinell.wrap(
        Clocked(), size=16, mean=(0, 0, 0), std=(1, 1, 1), classes=("dark", "light"), name="slow", execution=execution
    )
    lens = {"name": "knob", "operators": ["brightness", "contrast", "fog"], "points": 40, "search": search}
    return open_setup(model, greys, {"lens": lens, "out": out}, execution)


@pytest.mark.usefixtures("always_probed")
@pytest.mark.parametrize("search", ["exact", "bracket"])
def test_an_estimate_knows_that_few_images_fill_no_batch(
    search: str, greys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = clocked_setup(greys, tmp_path / "run", search)
    monkeypatch.setattr(planning, "_speed", lambda model, batch: (8, 8 / BATCH))
    monkeypatch.setattr(pace.time, "perf_counter", lambda: BATCH * len(BATCHES))
    (cost,) = plan(setup).costs
    monkeypatch.undo()
    BATCHES.clear()
    execute(setup)
    taken = BATCH * len(BATCHES)
    assert taken / 1.3 < cost.seconds < taken * 1.3, (cost.seconds, taken)


@pytest.mark.usefixtures("always_probed")
@pytest.mark.parametrize("compiling", [{"cpu"}, set()])
def test_compiling_kernels_is_not_taken_for_their_speed(
    compiling: set[str], greys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = clocked_setup(greys, tmp_path / "run", "exact")
    compiled: set[str] = set()  # changes, by the first query that has them
    own = Evaluator.query

    def query(self: Evaluator, trials: Trials) -> Any:
        compiled.add(trials.change.id)
        return own(self, trials)

    monkeypatch.setattr(Evaluator, "query", query)
    monkeypatch.setattr(pace, "COMPILING", compiling)
    monkeypatch.setattr(planning, "_speed", lambda model, batch: (8, 8 / BATCH))
    monkeypatch.setattr(pace.time, "perf_counter", lambda: BATCH * len(BATCHES) + 20 * len(compiled))
    (cost,) = plan(setup).costs
    monkeypatch.undo()
    BATCHES.clear()
    execute(setup)
    taken = BATCH * len(BATCHES)
    assert (cost.seconds < taken * 2) == bool(compiling), (cost.seconds, taken)
