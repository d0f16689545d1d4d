"""The profile lens finds what is known beforehand, and its figures are those of the rows."""

from __future__ import annotations

import math
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import brinell
from brinell.lenses.method import Outcome, Shard, Trials
from brinell.lenses.profile.exhibits import find_first_failures, select_exhibits
from brinell.perturb.operator import find_operator, operator_names
from conftest import PLAIN

#: operators that need no gradients, with those of installed packages
BLACK_BOX = [name for name in operator_names() if not find_operator(name).white_box]

THRESHOLD = 0.25  # of the fake model


def first_dark_level(image: np.ndarray) -> int:
    """By plain code, the first level of fading to black at which the mean grey lies below the fake model's threshold."""
    values = image.astype(np.int64)
    for level in range(1, 31):
        tenfold = values * 9
        down, rest = tenfold // 10, tenfold % 10
        values = down + ((rest > 5) | ((rest == 5) & (down % 2 == 1)))
        if values.mean() < THRESHOLD * 255:
            return level
    raise AssertionError


def test_it_finds_the_fake_model_s_breaking_point(greys: Path, tmp_path: Path) -> None:
    run = brinell.run(
        f"fake:grey:{THRESHOLD}",
        greys,
        lens={"name": "profile", "operators": ["fade_black", "fade_white"]},
        out=tmp_path / "run",
        execution=PLAIN,
        quiet=True,
    )
    found = dict(
        run.rows(
            "select name, min(level) from rows join samples using (image) where operator = 'fade_black:published' and not "
            "correct group by 1"
        ).fetchall()
    )
    dataset, model = brinell.open_dataset(greys), brinell.open_model("fake:grey", PLAIN)
    expected = {}
    for index in range(len(dataset)):
        sample = dataset[index]
        expected[sample.name] = first_dark_level(model.preprocess.model_input(sample.image).numpy())
    assert found == expected
    levels = sorted(expected.values())
    summary = run.summary()
    half = summary.failure_point("grey:0.25", "fade_black:published", 0.5)
    assert half.level == levels[len(levels) // 2], "accuracy is below half once more than half of the images are dark"
    assert half.caption.startswith("mean grey 146 → ")
    never = summary.failure_point("grey:0.25", "fade_white:published", 0.5)
    assert (never.level, never.caption) == (None, "never")


def test_the_lens_queries_in_order_and_sees_no_device() -> None:
    from brinell.lenses.profile.lens import METHOD
    from brinell.lenses.profile.options import ProfileOptions

    measuring = METHOD.measure(Shard(3, 8, 8, _outcome(3)), find_operator("jpeg:published"), ProfileOptions(levels=4))
    trials = next(measuring)
    assert isinstance(trials, Trials)
    assert trials.samples.tolist() == [0, 1, 2] * 4
    assert trials.parameters[:, 0].tolist() == [1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4]
    with pytest.raises(StopIteration) as finished:
        measuring.send(_outcome(12))
    columns = finished.value.value
    assert columns["level"].tolist() == sorted(list(range(5)) * 3)
    assert columns["amount"].unique().tolist() == [28, 29, 30, 31, 100]


def _outcome(count: int) -> Outcome:
    from brinell.criteria.verdict import Verdict
    from brinell.perturb.difference import Difference

    zeros = torch.zeros(count)
    whole = torch.zeros(count, dtype=torch.int64)
    return Outcome(Verdict(whole, zeros, whole, zeros), zeros.bool(), Difference(*[zeros] * 7), zeros, whole)


@pytest.fixture(scope="module")
def cifar_run(assets: Path, tmp_path_factory: pytest.TempPathFactory) -> brinell.Run:
    """Two real networks on real images, all operators that need no gradient."""
    classes = f"?classes={assets}/models/cifar10.txt"
    return brinell.run(
        [f"onnx:{assets}/models/cifar10_resnet20.onnx{classes}", f"onnx:{assets}/models/cifar10_resnet56.onnx{classes}"],
        {"source": str(assets / "images" / "cifar10_test_2000.npz"), "limit": 12},
        lens={"name": "profile", "levels": 10},
        out=tmp_path_factory.mktemp("cifar") / "run",
        execution=brinell.Execution(batch=10),
        quiet=True,
    )


def test_every_number_of_the_summary_is_in_the_rows(cifar_run: brinell.Run) -> None:
    """Recomputed with numpy, without SQL."""
    rows = cifar_run.rows().fetchnumpy()
    summary = cifar_run.summary()
    assert len(summary.curves) == 2 * len(BLACK_BOX)
    for (model, operator), points in list(summary.curves.items())[::5]:
        mine = (rows["model"] == model) & (rows["operator"] == operator)
        areas = []
        for point in points:
            at = mine & (rows["level"] == point.level)
            assert point.images == at.sum() == 12
            assert point.accuracy.value == pytest.approx(rows["correct"][at].mean())
            assert point.rank.value == pytest.approx(rows["rank"][at].mean())
            assert point.probability.value == pytest.approx(rows["probability"][at].mean(), rel=1e-5)
            half = 2.2010 * rows["rank"][at].std(ddof=1) / math.sqrt(12)  # Student's 97.5 % point for 11 degrees
            wider = math.exp(half / point.rank.value) if point.rank.value else 1
            assert point.rank.high >= point.rank.value * wider * 0.999  # wider still where few values are skewed
            areas.append(point.accuracy.value)
        assert summary.areas[model, operator].value == pytest.approx(np.mean(areas))
    for model in summary.models:
        common = [operator for name, operator in summary.areas if name == model]
        assert summary.average_areas[model].value == pytest.approx(
            np.mean([summary.areas[model, operator].value for operator in common])
        )


def test_rows_hold_what_they_should(cifar_run: brinell.Run) -> None:
    total, clean, bad = cifar_run.rows(
        """select count(*), count(*) filter (level = 0 and changed = 0 and mse = 0),
           count(*) filter (rank < 0 or probability not between 0 and 1 or confidence < probability - 1e-6
                            or correct != (rank = 0) or correct != (prediction = label)) from rows"""
    ).fetchall()[0]
    assert (total, clean, bad) == (2 * len(BLACK_BOX) * 11 * 12, 2 * len(BLACK_BOX) * 12, 0)
    assert cifar_run.rows("select count(*) from rows where l2 > 0 and abs(l2 * l2 / 3072 - mse) > 1e-6").fetchall() == [
        (0,)
    ]


def test_degradation_hurts(cifar_run: brinell.Run) -> None:
    summary = cifar_run.summary()
    for model in summary.models:
        levels = [point["accuracy"].value for point in summary.averages[model]]
        assert levels[0] > 0.85
        assert levels[10] < levels[0] - 0.2


def test_first_failures_are_where_they_are_said_to_be(cifar_run: brinell.Run) -> None:
    found = find_first_failures(cifar_run, 2)
    assert {(one.model, one.operator) for one in found} <= set(cifar_run.summary().curves)
    for one in found[::7]:
        rows = cifar_run.rows(
            f"select level, correct, prediction from rows where model = '{one.model}' and operator = '{one.operator}' and "
            f"image = '{one.image}' order by level"
        ).fetchall()
        assert all(correct for _, correct, _ in rows[: one.level])
        assert rows[one.level][1:] == (False, one.prediction)


def test_stored_distances_are_those_of_the_replayed_image(cifar_run: brinell.Run, assets: Path) -> None:
    """Any row can be replayed: id, operator, level and seed determine its image."""
    from brinell.perturb.difference import difference
    from brinell.types import id_number, image_id

    dataset = brinell.open_dataset(assets / "images" / "cifar10_test_2000.npz")
    image = dataset[7].image
    name = image_id(image)
    rows = cifar_run.rows(
        f"select operator, level, mse, l1, linf, changed from rows where image = '{name}' and level in (1, 4, 10) and "
        "model = 'cifar10_resnet20'"
    ).fetchall()
    assert len(rows) == len(BLACK_BOX) * 3
    for operator, level, mse, l1, linf, changed in rows:
        made = find_operator(operator).at(image[None], level, seed=0, ids=torch.tensor([id_number(name)]))
        replayed = difference(image[None], made)
        assert (float(replayed.mse), float(replayed.l1), float(replayed.linf), float(replayed.changed)) == pytest.approx(
            (mse, l1, linf, changed), rel=1e-5
        )


def test_natural_units(cifar_run: brinell.Run) -> None:
    curves = cifar_run.summary().curves

    def at(operator: str, level: int) -> str:
        caption: str = curves["cifar10_resnet20", operator][level].caption
        return caption

    assert at("black_lines:published", 1).startswith("1 line, ")
    assert at("black_lines:published", 6).startswith("6 lines, ")
    assert at("boxes:published", 5).startswith("30 boxes, ")
    assert at("jpeg:standard", 10) == "quality 67"
    assert at("posterise:published", 10).endswith("colours left (22 values per channel)")
    assert at("white_fog:published", 3).startswith("mean grey ")


def test_selection_keeps_the_images_that_models_get_right(assets: Path, tmp_path: Path) -> None:
    classes = f"?classes={assets}/models/cifar10.txt"
    models = [
        f"onnx:{assets}/models/cifar10_resnet20.onnx{classes}",
        f"onnx:{assets}/models/cifar10_resnet56.onnx{classes}",
    ]
    data = {"source": str(assets / "images" / "cifar10_test_2000.npz"), "limit": 80}
    lens = {"name": "profile", "levels": 1, "operators": ["jpeg"]}
    execution, wrong = brinell.Execution(batch=20), {}
    for select in ("all", "correct", "correct:cifar10_resnet20"):
        run = brinell.run(models, data, lens=lens, select=select, out=tmp_path / select, execution=execution, quiet=True)
        clean = run.rows(
            "select model, count(*) filter (not correct), count(*) from rows where level = 0 group by 1"
        ).fetchall()
        wrong[select] = {model: (bad, total) for model, bad, total in clean}
        kept = run.rows("select count(distinct index) filter (kept), count(distinct index) from clean").fetchall()[0]
        assert kept == (wrong[select]["cifar10_resnet20"][1], 80)
    assert wrong["all"]["cifar10_resnet20"][1] == 80
    assert wrong["all"]["cifar10_resnet20"][0] > 0
    assert [bad for bad, _ in wrong["correct"].values()] == [0, 0]
    assert wrong["correct:cifar10_resnet20"]["cifar10_resnet20"][0] == 0
    assert wrong["correct"]["cifar10_resnet20"][1] <= wrong["correct:cifar10_resnet20"]["cifar10_resnet20"][1] < 80


def test_predictions_can_be_the_truth(assets: Path, tmp_path: Path) -> None:
    images = [brinell.open_dataset(assets / "images" / "cifar10_test_2000.npz")[index].image for index in range(20)]
    run = brinell.run(
        f"onnx:{assets}/models/cifar10_resnet20.onnx",
        {"source": images, "labels": "prediction"},
        lens={"name": "profile", "levels": 2, "operators": ["global_blur"]},
        out=tmp_path / "run",
        execution=brinell.Execution(batch=10),
        quiet=True,
    )
    assert run.rows("select avg(correct::int) from rows where level = 0").fetchall() == [(1.0,)]
    with pytest.raises(brinell.LabelError, match="--labels prediction"):
        brinell.run(f"onnx:{assets}/models/cifar10_resnet20.onnx", images, out=tmp_path / "other", quiet=True)


def test_top_5_profiles(assets: Path, tmp_path: Path) -> None:
    run = brinell.run(
        f"onnx:{assets}/models/cifar10_resnet20.onnx",
        {"source": str(assets / "images" / "cifar10_test_2000.npz"), "limit": 30},
        lens={"name": "profile", "levels": 3, "operators": ["noise"], "criterion": "top_k_misclassification(5)"},
        out=tmp_path / "run",
        execution=brinell.Execution(batch=10),
        quiet=True,
    )
    assert run.rows("select count(*) from rows where correct != (rank < 5)").fetchall() == [(0,)]


def test_gradient_descent_on_the_model_under_test(assets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(assets / "models"))
    import nets  # type: ignore[import-not-found]

    module, (_, size, _), names = nets.load("cifar10_resnet20")
    model = brinell.wrap(module, size=size, classes=names, name="resnet20", execution=PLAIN)
    data = {"source": str(assets / "images" / "cifar10_test_2000.npz"), "limit": 20}
    lens = {"name": "profile", "levels": 4, "operators": ["gradient_descent", "gradient_descent:l2", "noise"]}
    run = brinell.run(model, data, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    summary = run.summary()
    for variant in ("sign", "l2"):
        curve = summary.curves["resnet20", f"gradient_descent:{variant}"]
        assert curve[4].accuracy.value < curve[0].accuracy.value - 0.4
        assert [point.probability.value for point in curve] == sorted([p.probability.value for p in curve], reverse=True)
    assert summary.operators[0] == "noise:published", "attacks come last"
    assert summary.averaged_operators == ["noise:published"], "and count in no average"
    with pytest.raises(brinell.ConfigError, match="needs gradients"):
        brinell.run(f"onnx:{assets}/models/cifar10_resnet20.onnx", data, lens=lens, out=tmp_path / "onnx", quiet=True)


def test_exhibits_leave_out_answers_that_a_service_owes(greys: Path, tmp_path: Path) -> None:
    """A service may fail for some images, which then have no row at that level."""
    lens = {"name": "profile", "operators": ["fade_black"]}
    run = brinell.run("fake:grey:0.25", greys, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    failure = run.summary().failure_point("grey:0.25", "fade_black:published", 0.5)
    before = [exhibit for exhibit in select_exhibits(run, {}) if exhibit.group == 0.5]
    assert len(before) == 1 and before[0].level == failure.level
    images = [image for (image,) in run.rows("select image from samples order by index").fetchall()]
    example = before[0].image

    def drop(missing: str) -> brinell.Run:
        for file in (tmp_path / "run" / "rows").rglob("*.parquet"):
            rows = pq.read_table(file)
            kept = duckdb.sql(f"select * from rows where not ({missing})").to_arrow_table()
            pq.write_table(kept.cast(rows.schema), file)
        return brinell.Run(tmp_path / "run")

    run = drop(f"image = '{example}' and level = {failure.level}")
    (other,) = [exhibit for exhibit in select_exhibits(run, {}) if exhibit.group == 0.5]
    assert other.image != example, "another image has all answers"
    others = ", ".join(f"'{image}'" for image in images if image != example)
    run = drop(f"image in ({others}) and level in (0, {30 if failure.level != 30 else 29})")
    assert [exhibit for exhibit in select_exhibits(run, {}) if exhibit.group == 0.5] == []
