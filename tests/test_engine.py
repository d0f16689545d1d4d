"""The engine: batches that halve, answers that can't be used, progress, and what a plan estimates."""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor, nn

import brinell
from brinell.api import open_setup
from brinell.criteria.criterion import find_criterion
from brinell.engine import progress, tuning, units
from brinell.engine import setup as assembling
from brinell.engine.estimates.plan import plan
from brinell.engine.evaluator import Evaluator
from brinell.engine.probes import REPEATED
from brinell.engine.progress import reporter
from brinell.engine.runner import execute
from brinell.engine.setup import assemble
from brinell.engine.shards import Entry
from brinell.engine.threads import CORES, batches, halving, one_each_core
from brinell.engine.units import Countdown
from brinell.errors import ModelError
from brinell.lenses.method import Trials
from brinell.models.model import Model
from brinell.models.preprocess import Format
from brinell.perturb.difference import difference
from brinell.perturb.operator import find_operator
from brinell.run_config import load_config
from brinell.runs.schema import Unit
from conftest import PLAIN

# ---- batches ----


@pytest.mark.parametrize("count", [1, 2, 7, 64, 100])
@pytest.mark.parametrize("size", [1, 3, 32, 1000])
def test_batches_hold_everything_once(count: int, size: int) -> None:
    made = batches(count, size)
    assert [index for part in made for index in range(part.start, part.stop)] == list(range(count))
    lengths = [part.stop - part.start for part in made]
    assert min(lengths) >= 1 and max(lengths) <= size and max(lengths) - min(lengths) <= 1
    assert len(made) in (count, -(-count // (size * CORES)) * CORES), "no core waits for the others"


def test_two_batches_are_computed_at_once() -> None:
    """Tests run torch in one thread, and still exercise the engine's own threads (see conftest.py)."""
    meeting = threading.Barrier(2, timeout=20)

    def meet(number: int) -> tuple[int, int]:
        meeting.wait()
        return number, torch.get_num_threads()

    assert CORES == 2 and torch.get_num_threads() == 1
    assert list(one_each_core(meet, range(4))) == [(number, 1) for number in range(4)]


class Accelerator:
    """Has memory for a number of images, and remembers the batch sizes it was given."""

    def __init__(self, holds: int) -> None:
        self.holds = holds
        self.sizes: list[int] = []

    def __call__(self, part: slice) -> list[int]:
        self.sizes.append(part.stop - part.start)
        if self.sizes[-1] > self.holds:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return list(range(part.start, part.stop))


@pytest.mark.parametrize(("batch", "holds", "found"), [(64, 64, 64), (64, 20, 16), (64, 1, 1), (7, 3, 3), (1, 1, 1)])
def test_a_batch_is_halved_until_it_fits(batch: int, holds: int, found: int) -> None:
    device = Accelerator(holds)
    parts, last = halving(device, 100, batch)
    assert [index for part in parts for index in part] == list(range(100)), "each image once, in order"
    assert last == found
    assert sum(size > holds for size in device.sizes) <= 6, "a size that does not fit is not retried"


def test_one_image_that_does_not_fit_says_what_to_do() -> None:
    with pytest.raises(ModelError, match="even with one image at a time; use --device cpu"):
        halving(Accelerator(0), 100, 8)


def test_other_errors_of_the_model_are_not_taken_for_memory() -> None:
    def broken(part: slice) -> None:
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError, match="a bug"):
        halving(broken, 100, 8)


# ---- answers that can't be used ----


class Fussy(nn.Module):
    """Light or dark like the fake model, but NaN for images outside a range of mean values."""

    def __init__(self, low: float, high: float) -> None:
        super().__init__()
        self.low, self.high = low, high

    def forward(self, images: Tensor) -> Tensor:
        level = images.mean((1, 2, 3))
        level = torch.where((level < self.low) | (level > self.high), torch.nan, level)
        return torch.stack([level, -level], 1)


class Squeezed(nn.Module):
    """Drops the batch axis of a single image, as careless modules do."""

    def forward(self, images: Tensor) -> Tensor:
        level = images.mean((2, 3))[:, :2]
        return level.squeeze(0)


def wrapped(module: nn.Module) -> brinell.Model:
    return brinell.wrap(module, size=16, classes=["light", "dark"], name="own", execution=PLAIN)


def test_nan_in_the_middle_of_a_run_names_operator_and_level(greys: Path, tmp_path: Path) -> None:
    lens = {"name": "profile", "operators": ["jpeg", "fade_black"], "levels": 5}
    with pytest.raises(ModelError) as caught:
        brinell.run(wrapped(Fussy(0.2, 1)), greys, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    assert re.search(
        r"model own returned NaN for \d of 8 images under fade_black:published at level 5; try --precision fp32",
        str(caught.value),
    )
    files = [path.parent.name for path in (tmp_path / "run").glob("rows/*/*/*/*.parquet")]
    assert files == ["jpeg%3Astandard"], "finished units are kept"


def test_nan_on_a_clean_image_names_it(greys: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"own returned NaN for the clean image light/11\.png; try --precision fp32"):
        brinell.run(wrapped(Fussy(0, 0.8)), greys, out=tmp_path / "run", execution=PLAIN, quiet=True)


def test_an_answer_of_another_shape_says_which(greys: Path, tmp_path: Path) -> None:
    execution = PLAIN.model_copy(update={"batch": 1})
    with pytest.raises(
        ModelError, match=r"own should return scores of shape \(1, 2\), but returned \(2,\); wrap it so that"
    ):
        brinell.run(wrapped(Squeezed()), greys, out=tmp_path / "run", execution=execution, quiet=True)


# ---- progress ----


def test_lines_show_rate_and_time_left(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with reporter() as progressing:
        advance = progressing.stage("profile of net", 100_000, "images")
        for now in (1.0, 5.0, 12.0, 13.0, 25.0, 100.0):  # noqa: B007
            advance(10_000)
        progressing.say("[bold] stays as it is")
        advance(40_000)
    assert capsys.readouterr().err.splitlines() == [
        "profile of net: 30,000 of 100,000 (30%), 2,500 images/s, 0:28 left",
        "profile of net: 50,000 of 100,000 (50%), 2,000 images/s, 0:25 left",
        "profile of net: 60,000 of 100,000 (60%), 600 images/s, 1:07 left",
        "[bold] stays as it is",
        "profile of net: 100,000 of 100,000 (100%), 1,000 images/s",
    ]


def test_long_times_have_hours() -> None:
    assert [progress.format_clock(seconds) for seconds in (0, 59.6, 3599, 7384)] == ["0:00", "1:00", "59:59", "2:03:04"]


def test_a_terminal_gets_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=120)
    monkeypatch.setattr(progress, "Console", lambda **_: terminal)
    with reporter() as progressing:
        advance = progressing.stage("profile of net[v1]", 200, "images")
        progressing.say("run: runs/[x]")
        for _ in range(20):
            advance(10)
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.getvalue())
    assert "run: runs/[x]" in shown
    assert "profile of net[v1] ━" in shown
    assert "200/200" in shown
    assert "images/s" in shown


def test_time_left_comes_from_finished_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change without finished images counts as the mean of the others, until it has some."""
    now = 0.0
    monkeypatch.setattr(units.time, "monotonic", lambda: now)
    own = Countdown({"slow": 4, "fast": 4})
    now = 3.0
    assert own.seconds_left() is None
    now = 10.0
    own.finish("slow", 1)
    assert own.seconds_left() == pytest.approx(3 * 10 + 4 * 10)
    now = 12.0
    own.finish("fast", 1)
    assert own.seconds_left() == pytest.approx(3 * 10 + 3 * 2)
    now = 17.0
    assert own.seconds_left() == pytest.approx(31)
    own.finish("slow", 3)
    now = 100.0
    assert own.seconds_left() == 0


def test_a_search_reports_its_images_once_while_its_unit_goes_on() -> None:
    seen: list[int] = []

    class Recorder(progress.Silent):
        def stage(self, what: str, total: int, unit: str, left: Any = None) -> Any:
            assert (total, unit) == (20, "searches")
            return seen.append

    first, second = Unit("geometry", "grey", "rotation", 0), Unit("geometry", "grey", "rotation", 1)
    job: Any = SimpleNamespace(
        lens=SimpleNamespace(name="geometry"), model=SimpleNamespace(name="grey"), method=SimpleNamespace(search=True)
    )
    own = units.JobProgress(Recorder(), job, {first: 100, second: 100}, {first: 12, second: 8})
    own.begin(first)
    for ended in (0, 3, 3, 9, 5):  # images of a second try go on again
        own.ended(ended)
    own.finish(first, 70)
    own.begin(second)
    own.ended(2)
    own.finish(second, 70)
    assert seen == [3, 6, 3, 2, 6]


def test_lines_show_the_estimate_where_steps_take_unequal_times(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now, estimates = 0.0, iter((None, 75.0))
    monkeypatch.setattr(progress.time, "monotonic", lambda: now)
    with reporter() as progressing:
        advance = progressing.stage("search", 20, "searches", lambda: next(estimates))
        for now in (100.0, 200.0):  # noqa: B007
            advance(1)
    assert capsys.readouterr().err.splitlines() == [
        "search: 1 of 20 (5%), 1 searches/min",
        "search: 2 of 20 (10%), 1 searches/min, 1:15 left",
    ]


@pytest.mark.parametrize(("most", "count", "size"), [(4096, 5000, 2500), (4096, 4096, 4096), (128, 12, 128), (4, 9, 3)])
def test_units_have_nearly_equal_sizes(most: int, count: int, size: int) -> None:
    assert units._even(most, count) == size


def test_units_of_a_slow_model_are_small_and_stay_as_they_are(
    greys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """12 images at 1 image per second, 20 levels each: 3 images take a minute."""
    lens = {"name": "profile", "operators": ["white_fog"], "levels": 20}

    def measure(rate: float, **execution: Any) -> brinell.Run:
        monkeypatch.setattr(units, "measured_rate", lambda model, batch: rate)
        given = brinell.Execution(runtime="torch", batch=4, **execution)
        out = tmp_path / f"run{execution}"
        return brinell.run("fake:grey", greys, lens=lens, out=out, execution=given, quiet=True)

    run = measure(1.0)
    assert run.manifest["execution"]["unit"] == {"profile/grey": 3}
    files = run.store.unit_files()
    assert len(files) == 4
    Path(files[1]).unlink()
    assert measure(1000.0).store.unit_files() == files
    assert len(measure(1.0, shard=12).store.unit_files()) == 1


@pytest.mark.parametrize(
    ("device", "shard", "size", "images"),
    [
        ("cuda", 4096, (480, 640), 1000),
        ("cuda", 128, (480, 640), 125),
        ("cuda", 4096, (4000, 3000), 59),
        ("cpu", 4096, (480, 640), 8),
    ],
)
def test_searches_on_an_accelerator_have_large_units(
    device: str, shard: int, size: tuple[int, int], images: int, greys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ManiFool mostly needs far fewer queries than it may; the originals of a unit fit into memory."""
    monkeypatch.setattr(units, "measured_rate", lambda model, batch: 1500.0)
    config = load_config(
        {"models": ["fake:grey"], "data": str(greys), "lenses": [{"name": "geometry"}], "execution": {"batch": 4}}
    )
    setup = assemble(config)
    job = assembling.jobs_of(setup)[0]
    job = replace(job, model=replace(job.model, device=torch.device(device)))
    entries = [Entry(index, str(index), "", size) for index in range(2000)]
    execution: dict[str, Any] = {"batch": {"grey": 4}, "shard": shard}
    sizes = units.measured_sizes(setup, [job], entries, execution)
    wide = units.wide_jobs([job], sizes)
    assert bool(wide) == (device == "cuda")
    assert units.unit_size(execution | {"unit": sizes, "wide": wide}, job, entries) == images
    assert units.unit_size(execution | {"unit": {"geometry/grey": 1000}}, job, entries) <= 250, "as in earlier runs"


def test_units_of_other_searches_take_a_minute_on_an_accelerator_too(greys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No journal keeps what they have found."""
    monkeypatch.setattr(units, "measured_rate", lambda model, batch: 20.0)
    setup = assemble(
        load_config({"models": ["fake:grey"], "data": str(greys), "lenses": [{"name": "knob"}], "execution": {"batch": 4}})
    )
    job = assembling.jobs_of(setup)[0]
    job = replace(job, model=replace(job.model, device=torch.device("cuda")))
    entries = [Entry(index, str(index), "", (480, 640)) for index in range(2000)]
    sizes = units.measured_sizes(setup, [job], entries, {"batch": {"grey": 4}, "shard": 4096})
    assert sizes["knob/grey"] < 60 and units.wide_jobs([job], sizes) == []


def test_quiet_says_nothing(greys: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lens = {"name": "profile", "operators": ["jpeg"], "levels": 1}
    brinell.run("fake:grey", greys, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    assert capsys.readouterr() == ("", "")


class Listening:
    """A reporter that adds up progress."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        self.done: dict[str, int] = {}

    def stage(self, what: str, total: int, unit: str, left: Any = None) -> Any:
        self.totals[what], self.done[what] = total, 0

        def advance(count: int) -> None:
            self.done[what] += count

        return advance

    def say(self, text: str) -> None:
        pass


# ---- what a run costs ----


class Counting(nn.Module):
    """Counts the images that it sees."""

    seen = 0  # by all copies

    def forward(self, images: Tensor) -> Tensor:
        Counting.seen += len(images)
        return images.mean((2, 3))


def test_a_plan_has_the_numbers_of_the_run(tmp_path: Path) -> None:
    model = brinell.wrap(Counting(), size=16, name="own", execution=PLAIN)
    images = [(np.full((16, 16, 3), 20 * index, np.uint8), 0) for index in range(1, 12)]
    config = load_config(
        {
            "models": {"source": "object:own", "name": "own"},
            "data": {"source": "object:list", "limit": 9},
            "lens": {"name": "profile", "operators": ["boxes", "noise", "gradient_descent"], "levels": 4},
            "execution": PLAIN.model_dump(),
            "out": str(tmp_path / "run"),
        }
    )
    parts = assemble(config, [model], images)
    estimate = plan(parts)
    assert not (tmp_path / "run").exists()
    (cost,) = estimate.costs
    assert (cost.images, cost.operators, cost.trials) == (9, 3, 9 * 3 * 4)

    Counting.seen = 0
    listening = Listening()
    run = execute(parts, listening)
    rows = run.connection.execute("select count(*), count(*) filter (level > 0) from rows").fetchone()
    assert rows == (estimate.rows, cost.trials)
    assert listening.totals == listening.done == {"reading images": 9, "clean answers": 9, "profile: own": cost.trials}
    shown = (Counting.seen - cost.gradients) - estimate.forward_passes
    probed = 2 * 3 + 3 * REPEATED  # plain images that recognise the model, and clean ones that are queried again
    assert 0 <= shown - probed <= 9, "besides, only the clean images of the pictures in the report"


# ---- step operators ----


@pytest.mark.parametrize("batch", [3, 8, 13, 40, 64])
def test_levels_queried_at_once_equal_levels_queried_one_by_one(batch: int) -> None:
    """A batch of a level must not start before the batch of the level below with the same images is done."""
    model = brinell.open_model("fake:grey:0.2", PLAIN)
    inputs = torch.randint(60, 200, (40, 3, 32, 32), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    ids, labels, operator = torch.arange(40), torch.zeros(40, dtype=torch.int64), find_operator("boxes")
    criterion = find_criterion("misclassification", None, 2)
    expected = [difference(inputs, operator.at(inputs, level, seed=0, ids=ids)).l1 for level in range(1, 13)]
    levels = torch.arange(1, 13).repeat_interleave(40).to(torch.float64)[:, None]
    trials = Trials(torch.arange(40).repeat(12), operator, levels)
    for _ in range(5):
        evaluator = Evaluator.of(model, inputs, ids, labels, criterion=criterion, seed=0, batch=batch)
        assert torch.equal(evaluator.query(trials).difference.l1, torch.cat(expected))


def test_the_speed_of_a_model_is_measured_once(greys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimates, units and every lens need it, also if the batch size is given."""
    measured, plain = list[int](), tuning.images_per_second
    monkeypatch.setattr(tuning, "images_per_second", lambda model, batch: measured.append(batch) or plain(model, batch))
    monkeypatch.setattr(tuning, "_rates", {})
    lenses = [
        {"name": "profile", "operators": ["fade_black"], "levels": 2},
        {"name": "knob", "operators": ["brightness"], "points": 2},
    ]
    execution = brinell.Execution(runtime="torch", batch=3)
    brinell.run("fake:grey", greys, lens=lenses, out=tmp_path / "run", execution=execution)
    assert measured == [3]


@pytest.mark.skipif(sys.platform == "darwin", reason="its file systems have no such names")
def test_an_unreadable_image_may_have_any_name(greys: Path, tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(greys / "light") + b"/\xff.png")).write_bytes(b"no image")
    lens = {"name": "profile", "operators": ["fade_white"], "levels": 1}
    run = brinell.run("fake:grey", greys, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    ((name, problem),) = run.query("select name, problem from samples where problem is not null")
    assert (Path(name).name, problem) == ("\\xff.png", "not an image of a known kind")


def test_the_speed_of_a_model_is_kept_for_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []
    monkeypatch.setenv("BRINELL_CACHE", str(tmp_path))
    monkeypatch.setattr(tuning, "images_per_second", lambda model, batch: measured.append(batch) or 100.0)

    def speed(model: str = "fake:grey") -> tuple[int, float]:
        monkeypatch.setattr(tuning, "_measured", {})  # as in another process
        return tuning.measured_speed(brinell.open_model(model, PLAIN))

    assert speed() == speed() == (2, 100.0)
    assert measured == [2, 4]
    assert speed("fake:grey:0.25") == (2, 100.0)
    assert measured == [2, 4, 2, 4]
    for content in ("{}", "no JSON", '{"batch": 0, "rate": 5.0, "time": 1e10}', '{"batch": "x", "rate": 5, "time": 1e10}'):
        for file in (tmp_path / "speeds").iterdir():
            file.write_text(content)
        measured.clear()
        assert speed() == (2, 100.0)
        assert measured == [2, 4]
    later = time.time() + tuning.KEPT_SECONDS
    monkeypatch.setattr(time, "time", lambda: later)
    speed()
    assert measured == [2, 4, 2, 4]


def test_a_speed_that_cannot_be_kept_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRINELL_CACHE", str(tmp_path))
    monkeypatch.setattr(tuning, "images_per_second", lambda model, batch: 100.0)
    monkeypatch.setattr(tuning, "_measured", {})
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))  # as where the disk is full
    assert tuning.measured_speed(brinell.open_model("fake:grey", PLAIN)) == (2, 100.0)
    assert not (tmp_path / "speeds").exists()


def test_no_speed_is_kept_of_what_may_be_another_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object may compute something else with the same weights in the next process."""
    measured: list[int] = []
    monkeypatch.setenv("BRINELL_CACHE", str(tmp_path))
    monkeypatch.setattr(tuning, "images_per_second", lambda model, batch: measured.append(batch) or 100.0)
    named = brinell.open_model("fake:grey", PLAIN)
    wrapped = brinell.wrap(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), size=8, execution=PLAIN)
    other = replace(named, takes=Format())  # by --no-channels-last
    for model, times in ((wrapped, 2), (named, 1), (other, 1)):
        measured.clear()
        for _ in range(2):
            monkeypatch.setattr(tuning, "_measured", {})
            tuning.measured_speed(model)
        assert measured == [2, 4] * times


def test_models_are_opened_on_one_core(greys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, opening took ten times as long on two."""
    threads, plain = list[int](), assembling.open_model
    monkeypatch.setattr(assembling, "open_model", lambda *given: threads.append(torch.get_num_threads()) or plain(*given))
    before = torch.get_num_threads()
    open_setup("fake:grey", greys, {"lens": "profile", "out": tmp_path / "run"}, PLAIN)
    assert threads == [1]
    assert torch.get_num_threads() == before


def test_on_a_cpu_the_batch_size_is_doubled_only_while_that_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks whose activations leave the cache are fastest with few images."""
    rates, measured = {2: 100.0, 4: 150.0, 8: 151.0, 16: 500.0}, list[int]()
    monkeypatch.setattr(tuning, "images_per_second", lambda model, batch: measured.append(batch) or rates[batch])
    monkeypatch.setattr(tuning, "_measured", {})
    monkeypatch.setattr(tuning, "_kept_speed", lambda model, file: tuning._measure_speed(model))
    assert tuning.best_batch(brinell.open_model("fake:grey", PLAIN)) == 4
    assert measured == [2, 4, 8]


@pytest.mark.parametrize(("most", "best"), [(8, 8), (48, 32), (400, 128)])
def test_on_an_accelerator_the_batch_size_fits_into_memory(most: int, best: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest size that is tried may be too large, too."""

    def rate(model: Model, batch: int) -> float:
        if batch > most:
            raise torch.OutOfMemoryError
        return min(batch, 128) * 100.0

    monkeypatch.setattr(tuning, "images_per_second", rate)
    monkeypatch.setattr(tuning, "_measured", {})
    model = replace(brinell.open_model("fake:grey", PLAIN), device=torch.device("cuda"))
    assert tuning.best_batch(model) == best


@pytest.mark.parametrize("batch", [1, 2, 3, 20])
def test_a_classifier_gets_batches_of_at_most_the_given_size_and_the_same_answers(batch: int) -> None:
    """A core changes and compares more images at a time than it asks the network about."""
    model = brinell.open_model("fake:grey:0.2", PLAIN)
    sizes = list[int]()
    plain = model.forward
    counting = replace(model, forward=lambda images: sizes.append(len(images)) or plain(images))
    inputs = torch.arange(0, 250, 10, dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 32, 32).contiguous()
    ids, labels = torch.arange(25), torch.zeros(25, dtype=torch.int64)
    criterion = find_criterion("misclassification", None, 2)
    evaluator = Evaluator.of(counting, inputs, ids, labels, criterion=criterion, seed=0, batch=batch)
    found = evaluator.clean.verdict.probability
    assert torch.equal(found, model.predict(inputs)[:, 0]) and max(sizes) <= batch and sum(sizes) == 25
