"""The knob lens finds the smallest breaking change, whichever way it searches, and keeps outcomes apart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import brinell
from brinell.lenses.knob.breaks import find_smallest_breaks
from brinell.lenses.knob.findings import KnobFindings
from brinell.lenses.knob.search import SEARCHES, Search, most_bracket_queries
from brinell.lenses.method import Outcome, Shard, Trials
from brinell.lenses.outcomes import ANSWERS, BROKEN, SURVIVED
from brinell.perturb.difference import difference
from brinell.perturb.property import PROPERTIES, find_property, property_names
from brinell.runs.schema import DISTANCES
from brinell.types import id_number
from conftest import PLAIN

MODEL = "fake:grey:0.25"


def turned(
    data: Any, out: Path, *, model: Any = MODEL, execution: brinell.Execution = PLAIN, **options: Any
) -> brinell.Run:
    lens = {"name": "knob", "operators": ["brightness"], **options}
    return brinell.run(model, data, lens=lens, out=out, execution=execution, quiet=True)


def found_in(run: brinell.Run, columns: str = "name, direction, status, level") -> list[tuple[Any, ...]]:
    return run.rows(f"select {columns} from rows join samples using (image) order by all").fetchall()


def inputs(data: Path, model: str = MODEL) -> tuple[list[str], Tensor, Tensor]:
    """The images as the model sees them: names, uint8 (N, C, H, W), and the numbers that name their draws."""
    dataset, preprocess = brinell.open_dataset(data), brinell.open_model(model, PLAIN).preprocess
    samples = [dataset[index] for index in range(len(dataset))]
    ids = torch.tensor([id_number(brinell.types.image_id(sample.image)) for sample in samples])
    return [sample.name for sample in samples], torch.stack([preprocess.model_input(one.image) for one in samples]), ids


class Window(nn.Module):
    """Class 0 while the mean grey lies outside (low, high); NaN above `blind`."""

    def __init__(self, low: float, high: float, blind: float = 2.0) -> None:
        super().__init__()
        self.low, self.high, self.blind = low, high, blind

    def forward(self, images: Tensor) -> Tensor:
        grey = images.mean((1, 2, 3))
        inside = ((grey > self.low) & (grey < self.high)).float()
        scores = torch.stack([1 - inside, inside], 1) * 4
        return torch.where((grey > self.blind)[:, None], torch.nan, scores)


class Skittish(nn.Module):
    """Scores that any change of the image moves about."""

    def __init__(self) -> None:
        super().__init__()
        weights = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(3))
        self.weights = nn.Parameter(weights - weights.mean((1, 2, 3), keepdim=True))

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = torch.einsum("nchw,kchw->nk", images, self.weights)
        return scores


def skittish() -> brinell.Model:
    return brinell.wrap(Skittish(), size=32, classes=tuple("abcd"), name="skittish", execution=PLAIN)


def unlabelled(greys: Path) -> dict[str, Any]:
    return {"source": greys, "labels": "prediction"}


def windowed(low: float, high: float, blind: float = 2.0) -> brinell.Model:
    return brinell.wrap(Window(low, high, blind), size=32, classes=("light", "dark"), name="window", execution=PLAIN)


@pytest.fixture(scope="module")
def exact(shared_greys: Path, tmp_path_factory: pytest.TempPathFactory) -> brinell.Run:
    """A finished run with every option at its default. Do not write to it."""
    return turned(shared_greys, tmp_path_factory.mktemp("exact") / "run")


# ---- the three searches ----


def test_it_finds_the_fake_model_s_breaking_point(greys: Path, tmp_path: Path) -> None:
    """Darker images are dark at once below a quarter of full light; lighter ones never."""
    run = turned(greys, tmp_path / "run", operators=["brightness", "contrast"])
    names, images, _ = inputs(greys)
    for name, image in zip(names, images.numpy().astype(np.float32) / 255, strict=True):
        greys_below = [
            place
            for place in range(1, 501)
            if np.rint(np.clip(image * 2 ** (-8 * place / 500), 0, 1) * 255).mean() < 0.25 * 255
        ]
        rows = run.rows(
            f"select direction, status, level from rows join samples using (image) where name = '{name}' and "
            "operator = 'brightness:standard' order by 1"
        ).fetchall()
        assert rows[0][:2] == ("darker", "broken")
        assert abs(rows[0][2] - greys_below[0]) <= 1, "one point of a grid of 500, for the last bit of a float"
        assert rows[1][1:] == ("survived", None)
    assert {row[2] for row in found_in(run, "operator, direction, status") if row[0].startswith("contrast")} == {"survived"}


@pytest.mark.parametrize("name", property_names())
def test_exact_search_agrees_with_a_plain_scan_on_a_real_network(name: str, assets: Path, tmp_path: Path) -> None:
    """One image and one point at a time, both directions."""
    model = f"onnx:{assets}/models/squeezenet1_1.onnx?classes={assets}/models/imagenet_classes.txt"
    data = {"source": assets / "images" / "imagenet_dev_300", "limit": 3}
    points = 10
    run = turned(data, tmp_path / "run", model=model, operators=[name], points=points, execution=brinell.Execution(batch=8))
    network, found = brinell.open_model(model), find_property(name)
    dataset = brinell.open_dataset(data["source"])
    labels = dict(run.rows("select name, any_value(rows.label) from rows join samples using (image) group by 1").fetchall())
    measured = {row[:2]: row[2:] for row in found_in(run)}
    for index in range(3):
        sample = dataset[index]
        model_input = network.preprocess.model_input(sample.image)[None]
        ids = torch.tensor([id_number(brinell.types.image_id(sample.image))])
        right = int(network.predict(model_input).argmax()) == labels[sample.name]
        for direction, track in zip(found.facts.directions, found.tracks(224, 224, points), strict=True):
            status, level = measured[sample.name, direction]
            if not right:
                assert (status, level) == ("skipped", None)
                continue
            amounts, first, place = found.amounts(track, 224, 224), None, 0
            for step, severity in enumerate(track):
                if len(severity) == 1 and step and amounts[step] == amounts[step - 1]:
                    continue  # the same image again
                place += 1
                image = found.apply(model_input, severity[None], seed=0, ids=ids)
                if int(network.predict(image).argmax()) != labels[sample.name]:
                    first = place
                    break
            assert (status, level) == (("survived", None) if first is None else ("broken", first)), (sample.name, direction)


def test_bracketing_finds_the_same_where_failure_is_monotone_and_asks_less(
    exact: brinell.Run, shared_greys: Path, tmp_path: Path
) -> None:
    bracket = turned(shared_greys, tmp_path / "bracket", search="bracket")
    assert found_in(exact) == found_in(bracket)
    queries = [run.rows("select max(queries), sum(queries) from rows").fetchall()[0] for run in (exact, bracket)]
    assert queries[1][0] <= most_bracket_queries(500) and queries[1][1] < queries[0][1] / 10


def test_bands_are_all_intervals_in_which_the_model_fails(greys: Path, tmp_path: Path) -> None:
    """Between 40 and 60 % of full light the answer is wrong: every darkened image goes through it, and comes out again."""
    _, images, _ = inputs(greys)
    light = {"source": greys, "limit": None}
    run = turned(light, tmp_path / "run", model=windowed(0.15, 0.2), search="bands", points=100)
    rows = run.rows(
        "select name, severity, until, queries, smallest from rows join samples using (image) where status = 'broken'"
    ).fetchall()
    assert len(rows) == len(images)
    for name, severity, until, queries, smallest in rows:
        image = images[int(Path(name).stem)].numpy().astype(np.float32) / 255
        inside = [
            -place / 100
            for place in range(1, 101)
            if 0.15 < np.rint(np.clip(image * 2 ** (-8 * place / 100), 0, 1) * 255).mean() / 255 < 0.2
        ]
        assert (severity, until) == (inside[0], inside[-1])
        assert queries == 100 and smallest
    summary = run.summary()
    assert isinstance(summary, KnobFindings)
    share = summary.hardness["window", "brightness:standard"].non_monotone
    assert share is not None and share.value == 1.0, "all of them recover"


def drive(broken: Tensor, search: Iterator[Trials], most: int) -> tuple[Any, int, int]:
    """Drive a search by a table of what breaks (samples, points); the search, the trials, and the rounds it took."""
    queries, rounds, outcome = 0, 0, None
    try:
        trials = next(search)
        while True:
            rounds += 1
            queries += len(trials.samples)
            assert len(trials.samples) <= most
            places = (trials.parameters[:, 0].abs() * broken.shape[1]).round().long() - 1
            hit = broken[trials.samples, places]
            numbers = torch.zeros(len(hit))
            verdict = type("V", (), {**dict.fromkeys(ANSWERS, numbers), "prediction": places})()
            distances = type("D", (), dict.fromkeys(DISTANCES, numbers))()
            outcome = Outcome(verdict, hit, distances, None, None)
            trials = search.send(outcome)
    except StopIteration as finished:
        return finished.value, queries, rounds


def searched(table: Tensor, how: str, full: int = 1) -> tuple[Search, int, int]:
    """Search a table of what breaks (samples, points); the search, the trials and the rounds it took."""
    count, length = table.shape
    right = type("V", (), {"rank": torch.zeros(count), "confidence": torch.ones(count)})()
    clean = type(
        "C", (), {"broken": torch.zeros(count, dtype=torch.bool), "verdict": right, "detections": None, "overlap": None}
    )()
    points = (torch.arange(1, length + 1, dtype=torch.float64) / length)[None, :, None]
    shard = Shard(count, 8, 8, clean, full=full)
    search = Search.of(shard, find_property("contrast"), points, torch.tensor([length]), resample=False)
    return drive(table, SEARCHES[how](search, search.active), max(full, count))


def islands(length: int, width: int, count: int = 200) -> Tensor:
    """Tables with one breaking interval each, of a width, behind which the model recovers."""
    starts = torch.randint(0, length - width, (count, 1), generator=torch.Generator().manual_seed(width))
    points = torch.arange(length)
    return (points >= starts) & (points < starts + width)


def first_breaks(table: Tensor) -> Tensor:
    return torch.where(table.any(1), table.to(torch.int8).argmax(1), -1)


@pytest.mark.parametrize("length", [50, 224, 500, 1000])
def test_bracketing_finds_every_interval_of_a_tenth_of_the_range(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    table = islands(length, length // 10)
    done, queries, _ = searched(table, "bracket")
    assert torch.equal(done.start, first_breaks(table)) and bool((done.status == BROKEN).all())
    assert queries == int(done.queries.sum()) and int(done.queries.max()) <= most_bracket_queries(length)
    monkeypatch.setattr("brinell.lenses.knob.search.PROBES", (0, 0))
    blind, few, _ = searched(table, "bracket")
    survivors = int((blind.status == SURVIVED).sum())
    assert survivors > 20, "doubling alone steps over many of them"
    assert queries - few <= 200 * 12 + survivors * length.bit_length()


def test_probes_find_a_smaller_break_below_the_first_one() -> None:
    """The model breaks from three quarters of the range on, and in an interval of its first half."""
    table = torch.nn.functional.pad(islands(500, 100), (0, 500)) | (torch.arange(1000) >= 750)
    done, *_ = searched(table, "bracket")
    assert int((done.start == first_breaks(table)).sum()) > 0.9 * len(table)
    assert bool(table[torch.arange(len(table)), done.start].all())


def test_bracketing_queries_no_point_twice_and_ends_at_a_break_with_a_point_below_that_holds() -> None:
    table = torch.rand(300, 97, generator=torch.Generator().manual_seed(2)) < 0.1
    done, *_ = searched(table, "bracket")
    broken = done.status == BROKEN
    rows, starts = broken.nonzero()[:, 0], done.start[broken]
    assert bool(table[rows, starts].all()) and not bool(table[rows, starts - 1][starts > 0].any())
    assert int(done.queries.max()) <= 97


@pytest.mark.parametrize("full", [1, 7, 64, 1000])
def test_exact_search_finds_the_first_break_of_any_table_and_fills_its_batches(full: int) -> None:
    table = torch.rand(23, 60, generator=torch.Generator().manual_seed(full)) < 0.03
    done, queries, rounds = searched(table, "exact", full)
    first = first_breaks(table)
    assert torch.equal(done.start, first)
    assert torch.equal(done.found["prediction"], first.clamp(min=0)), "what is kept is what was answered there"
    needed = int(torch.where(first >= 0, first + 1, 60).sum())
    assert needed <= queries == int(done.queries.sum())
    assert queries - needed <= 23 * 7, "querying ahead costs at most a few points per image"
    if full == 1000:
        assert rounds <= 60 / 8 + 1


# ---- outcomes ----


def test_outcomes_are_never_mixed(greys: Path, tmp_path: Path) -> None:
    """Wrong when clean: skipped. No answer on the way: failed. Nothing found: survived."""
    skipped = turned(greys, tmp_path / "skipped", model="fake:grey:0.6", points=100)
    status = found_statuses(skipped)
    names, images, _ = inputs(greys)
    for name, image in zip(names, images, strict=True):
        wrong = float(image.float().mean()) / 255 <= 0.6
        assert status[name] == ({"skipped"} if wrong else {"broken", "survived"})
    summary = skipped.summary()
    assert isinstance(summary, KnobFindings)
    one = summary.hardness["grey:0.6", "brightness:standard"]
    assert one.skipped == sum("skipped" in found for found in status.values()) and one.tested == 12 - one.skipped
    failed = turned(greys, tmp_path / "failed", model=windowed(-1, 0.1, blind=0.995), points=20)
    assert found_statuses(failed, "direction") == {"lighter": {"failed"}, "darker": {"broken"}}


def found_statuses(run: brinell.Run, by: str = "name") -> dict[str, set[str]]:
    rows = run.rows(f"select {by}, status from rows join samples using (image)").fetchall()
    statuses: dict[str, set[str]] = {}
    for key, status in rows:
        statuses.setdefault(key, set()).add(status)
    return statuses


def test_a_model_that_could_not_be_tested_is_not_called_robust(greys: Path, tmp_path: Path) -> None:
    blind = brinell.wrap(Window(-1, 2), size=32, classes=("light", "dark"), name="blind", execution=PLAIN)
    run = turned(greys, tmp_path / "run", model=[blind, windowed(-1, 0.1)], points=9)
    found = run.summary()
    assert isinstance(found, KnobFindings)
    assert found.models == ["window", "blind"] and found.best_model("brightness:standard") is None
    assert found.verdict("blind").startswith("blind could not be tested")
    assert found.hardness["blind", "brightness:standard"].half_broken_at == "no image was tested"
    page = Path(run.report()).read_text()
    assert "never broken" not in page and "no image was tested" in page


@pytest.mark.parametrize(("low", "high", "blind"), [(-1, -0.5, 0.99), (-1, -0.5, 2.0)])
def test_an_image_with_an_unanswered_direction_did_not_survive(
    low: float, high: float, blind: float, greys: Path, tmp_path: Path
) -> None:
    """Whichever direction it is."""
    run = turned(greys, tmp_path / "run", model=windowed(low, high, blind), points=9)
    stands = dict(run.rows("select status, count(*) from rows where smallest group by all").fetchall())
    assert stands == {"failed" if blind < 1 else "survived": 12}
    dark = brinell.wrap(Dim(0.05), size=32, classes=("light", "dark"), name="dim", execution=PLAIN)
    other = turned(greys, tmp_path / "dim", model=dark, points=9)
    assert other.rows("select distinct status, correct from rows where smallest").fetchall() == [("failed", None)]


class Dim(nn.Module):
    """Light, but no answer below a mean grey value."""

    def __init__(self, least: float) -> None:
        super().__init__()
        self.least = least

    def forward(self, images: Tensor) -> Tensor:
        grey = images.mean((1, 2, 3))
        return torch.where((grey < self.least)[:, None], torch.nan, torch.tensor([[4.0, 0.0]]).expand(len(images), 2))


@pytest.mark.parametrize(
    "criterion", ["target_class(0)", "top_k_misclassification(2)", "confident_misclassification(0.99)"]
)
def test_what_is_wrong_when_clean_is_skipped_under_every_criterion(criterion: str, greys: Path, tmp_path: Path) -> None:
    wrong = turned(greys, tmp_path / "run", model=windowed(-1, 2), criterion=criterion, points=5)
    assert wrong.rows("select distinct status from rows").fetchall() == [("skipped",)]


def test_images_that_recover_are_counted_once_and_no_answer_is_no_recovery(greys: Path, tmp_path: Path) -> None:
    """Darkened, a window in the grey values is gone through; the whole dark end is not, even with a hole of NaN in it."""

    class Holed(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            grey = images.mean((1, 2, 3))
            dark = (grey < 0.2).float()
            scores = torch.stack([1 - dark, dark], 1) * 4
            return torch.where(((grey > 0.1) & (grey < 0.12))[:, None], torch.nan, scores)

    holed = brinell.wrap(Holed(), size=32, classes=("light", "dark"), name="holed", execution=PLAIN)
    run = turned(greys, tmp_path / "run", model=[holed, windowed(0.1, 0.2)], search="bands", points=200)
    found = run.summary()
    assert isinstance(found, KnobFindings)
    shares = {model: found.hardness[model, "brightness:standard"].non_monotone for model in ("holed", "window")}
    assert {model: share and share.value for model, share in shares.items()} == {"holed": 0.0, "window": 1.0}
    bands = run.rows("select model, count(*) from rows where status = 'broken' group by all").fetchall()
    assert dict(bands) == {"holed": 12, "window": 12}


def test_bands_and_exact_search_agree_on_the_smallest_change(greys: Path, tmp_path: Path) -> None:
    sql = "select name, direction, level, mse, smallest from rows join samples using (image) where smallest order by all"
    options = {"operators": ["rotation", "brightness"], "points": 40, "model": skittish()}
    exact, bands = (
        turned(unlabelled(greys), tmp_path / search, search=search, **options).rows(sql).fetchall()
        for search in ("exact", "bands")
    )
    assert exact == bands and any(row[1] == "clockwise" for row in exact)


def test_ranges_go_from_the_weakest_to_the_strongest_change(exact: brinell.Run) -> None:
    found = exact.summary()
    assert isinstance(found, KnobFindings)
    (one,) = found.ranges
    assert one.direction == "darker" and 1 > one.weakest > one.mean.value > one.strongest > 0, "a factor of light"


@pytest.mark.parametrize("resample", [False, True])
def test_stored_distances_are_those_of_the_stored_parameters(resample: bool, greys: Path, tmp_path: Path) -> None:
    """Any row can be replayed to its image."""
    options = {"operators": ["all"], "points": 9, "resample": resample}
    run = turned(unlabelled(greys), tmp_path / "run", model=skittish(), **options)
    names, images, ids = inputs(greys)
    rows = run.rows(
        f"select operator, name, level, severity, severity_x, severity_y, {', '.join(DISTANCES)} from rows join samples "
        "using (image) where status = 'broken'"
    ).fetchall()
    assert {row[0].partition(":")[0] for row in rows} == set(property_names())
    for operator, name, level, *severities, mse, mae, l1, l2, linf, l0, changed in rows:
        found, place = find_property(operator), names.index(name)
        given = torch.tensor([[one for one in severities if one is not None]], dtype=torch.float64)
        field = torch.tensor([level]) if resample else None
        image = found.apply(images[place, None], given, seed=0, ids=ids[place, None], fields=field)
        again = difference(images[place, None], image)
        for value, measured in zip((mse, mae, l1, l2, linf, l0, changed), DISTANCES, strict=True):
            assert float(getattr(again, measured)) == pytest.approx(value, rel=1e-6), (operator, measured)
        gap = (image[0].double() - images[place].double()) / 255
        assert mse == pytest.approx(float((gap**2).mean()), rel=1e-4)


def test_the_smallest_of_two_directions_stands_for_its_image(greys: Path, tmp_path: Path) -> None:
    run = turned(unlabelled(greys), tmp_path / "run", model=skittish(), operators=["rotation"], points=50, distance="mae")
    rows = run.rows(
        "select image, count(*) filter (smallest), arg_min(smallest, coalesce(mae, 9)), count(*) from rows group by 1"
    ).fetchall()
    assert rows and all(row[1:] == (1, True, 2) for row in rows)
    both = "select count(*) from (select image from rows where status = 'broken' group by 1 having count(*) = 2)"
    assert run.rows(both).fetchall()[0][0] >= 6, "or there would be nothing to choose"


def test_a_finer_nested_grid_never_gives_a_larger_minimum(greys: Path, tmp_path: Path) -> None:
    sql = "select name, direction, coalesce(abs(severity), 9) from rows join samples using (image) order by 1, 2"
    coarse, fine = (
        turned(greys, tmp_path / str(points), points=points, operators=["brightness", "uniform_noise"]).rows(sql).fetchall()
        for points in (10, 40)
    )
    assert all(new[2] <= old[2] for old, new in zip(coarse, fine, strict=True))


@pytest.mark.parametrize("execution", [{"batch": 1}, {"batch": 7}, {"batch": 64}, {"shard": 3}, {"workers": 3}])
def test_rows_do_not_depend_on_how_they_were_measured(execution: dict[str, int], greys: Path, tmp_path: Path) -> None:
    options = {"operators": ["brightness", "gaussian_noise", "rotation"], "points": 15, "model": skittish()}
    usual = turned(unlabelled(greys), tmp_path / "usual", **options)
    other = turned(unlabelled(greys), tmp_path / "other", execution=PLAIN.model_copy(update=execution), **options)
    columns = "operator, name, direction, status, severity, mse, prediction, smallest"
    assert found_in(usual, columns) == found_in(other, columns)


def test_fresh_draws_differ_from_point_to_point(greys: Path) -> None:
    _, images, ids = inputs(greys)
    found, severities = find_property("uniform_noise"), torch.full((12, 1), 0.5, dtype=torch.float64)
    first = found.apply(images, severities, seed=0, ids=ids)
    assert torch.equal(first, found.apply(images, severities, seed=0, ids=ids, fields=torch.zeros(12, dtype=torch.int64)))
    again = found.apply(images, severities, seed=0, ids=ids, fields=torch.arange(12))
    same = [torch.equal(one, other) for one, other in zip(first, again, strict=True)]
    assert same == [True] + [False] * 11


# ---- figures ----


def test_figures_are_those_of_the_rows(greys: Path, tmp_path: Path) -> None:
    models = ["fake:grey:0.25", "fake:grey:0.4"]
    run = turned(greys, tmp_path / "run", model=models, operators=["brightness", "horizontal_translation"], points=30)
    found = run.summary()
    assert isinstance(found, KnobFindings)
    table = run.rows(
        "select model, operator, status, mse from rows where smallest and operator = 'brightness:standard'"
    ).fetchall()
    everyone = [row[3] for row in table if row[2] == "broken"]
    for name in ("grey:0.25", "grey:0.4"):
        mine = [row for row in table if row[0] == name]
        broken = [row[3] for row in mine if row[2] == "broken"]
        tested = [row for row in mine if row[2] in ("broken", "survived")]
        one = found.hardness[name, "brightness:standard"]
        assert one.robustness.value == pytest.approx(np.mean(broken))
        half_width = 1.96 * np.std(broken, ddof=1) / np.sqrt(len(broken))
        assert half_width < one.robustness.high - one.robustness.value < 3 * half_width, "wider for a dozen skewed values"
        assert one.threshold == pytest.approx(np.mean(everyone))
        assert one.fooled.value == pytest.approx(sum(value < np.mean(everyone) for value in broken) / len(tested))
        assert one.survived_share.value == pytest.approx(1 - len(broken) / len(tested))
        curve = [record for record in found.curves if record["model"] == name and "brightness" in record["operator"]]
        assert curve[-1]["share"] == pytest.approx(len(broken) / len(tested))
        assert curve[-2]["distance"] == pytest.approx(max(broken))
        assert curve[-1]["distance"] == pytest.approx(max(everyone)), "all lines end at the same distance"
    assert found.best_model("brightness:standard") == "grey:0.25", "it takes more darkness to break"
    assert found.models[0] == "grey:0.25"
    assert "breaks most easily under" in found.verdict("grey:0.4")
    shown = find_smallest_breaks(run, 2)
    assert [one.distance for one in shown if one.model == "grey:0.25"][:2] == sorted(
        one.distance for one in shown if one.model == "grey:0.25" and one.operator == shown[0].operator
    )[:2]


def test_half_of_the_images_are_broken_at_the_median_strength(exact: brinell.Run) -> None:
    summary = exact.summary()
    assert isinstance(summary, KnobFindings)
    found = summary.hardness["grey:0.25", "brightness:standard"]
    amounts = sorted(
        (row[0] for row in exact.rows("select amount from rows where direction = 'darker'").fetchall()), reverse=True
    )
    assert found.median == {"darker": pytest.approx(amounts[5]), "lighter": None}
    assert found.half_broken_at == f"{amounts[5]:.3g}× (darker); more than half survive lighter"


def test_both_lenses_in_one_run_and_one_report(greys: Path, tmp_path: Path) -> None:
    config = {
        "model": MODEL,
        "data": str(greys),
        "lenses": [
            {"name": "profile", "operators": ["fade_black"], "levels": 3},
            {"name": "knob", "operators": ["brightness"], "points": 20, "criterion": "target_class(dark)"},
        ],
        "out": str(tmp_path / "run"),
        "execution": {"runtime": "torch", "batch": 4, "shard": 8},
    }
    from brinell.engine.runner import execute
    from brinell.engine.setup import assemble
    from brinell.run_config import load_config

    run = brinell.Run(execute(assemble(load_config(config))).store)
    assert list(run.findings()) == ["profile", "knob"]
    page = Path(run.report()).read_text()
    for text in ("How hard is grey:0.25?", "Failure points", "The smallest changes that break it", "target class(dark)"):
        assert text in page
    for name in ("average", "robustness", "fooling", "thresholds", "ranges"):
        run.figure(name).to_json()
    with pytest.raises(
        brinell.ConfigError, match="there is no figure 'bars'; known: average, operators, panels, areas, robustness"
    ):
        run.figure("bars")


@pytest.mark.parametrize("name", list(PROPERTIES))
def test_every_property_has_figures(name: str, greys: Path, tmp_path: Path) -> None:
    run = turned(unlabelled(greys), tmp_path / "run", operators=[name], points=4, model=skittish())
    found = run.summary()
    assert found.operators == [name]
    run.figure("ranges", operator=name).to_json()
    assert name.partition(":")[0] in run.rows("select distinct operator from rows").fetchall()[0][0]


def test_a_photograph_of_frost_and_a_report_without_it(greys: Path, tmp_path: Path) -> None:
    """The report needs no more than the rows: not the file that a property was made of."""
    Image.fromarray(np.full((9, 9, 3), 160, np.uint8)).save(tmp_path / "pane.png")
    options = {"operators": ["frost", "contrast"], "points": 4, "frost": str(tmp_path / "pane.png"), "model": skittish()}
    run = turned(unlabelled(greys), tmp_path / "run", **options)
    (name,) = (operator for operator in run.summary().operators if operator.startswith("frost:"))
    try:
        assert name.startswith("frost:pane-")
        PROPERTIES._parts.pop(name)
        assert f"frost ({name.partition(':')[2]})" in Path(run.report()).read_text()
    finally:
        PROPERTIES._parts.pop(name, None)
