"""Hardness: every lens's definition against plain loops over its rows, and what it says about few operators and models."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

import brinell
from brinell.lenses.lens import LENSES
from brinell.lenses.rating import describe_untested, rate
from brinell.runs.hardness import Scale, describe_weakest, measure_hardness
from conftest import PLAIN

LENS: list[dict[str, Any]] = [
    {"name": "profile", "operators": ["fade_black", "boxes", "fade_white"], "levels": 6},
    {"name": "knob", "operators": ["brightness", "fog"], "points": 12},
    {"name": "highlights", "cells": 2, "sigmas": [4], "search_queries": 8},
    {"name": "fragility", "sizes": [0.3, 0.6], "stride": 4},
    {"name": "geometry", "operators": ["translation"], "methods": ["random"], "radii": [0.5], "draws": 3},
]


@pytest.fixture(scope="module")
def run(shared_greys: Path, tmp_path_factory: pytest.TempPathFactory) -> brinell.Run:
    """All lenses that change images, on two models: one breaks early, one late."""
    models = [{"source": f"fake:grey:{threshold}", "name": name} for name, threshold in (("soft", 0.5), ("hard", 0.3))]
    out = tmp_path_factory.mktemp("hardness") / "run"
    return brinell.run(models, shared_greys, lens=LENS, out=out, execution=PLAIN, quiet=True)


def average(values: dict[tuple[str, str, str], list[float]]) -> dict[str, float]:
    """Return, by model, the mean over images of the mean over operators of the mean of the values, times 100."""
    images: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (model, _, image), own in values.items():
        images[model, image].append(mean(own))
    models: dict[str, list[float]] = defaultdict(list)
    for (model, _), own in images.items():
        models[model].append(mean(own))
    return {model: 100 * mean(own) for model, own in models.items()}


def rows(run: brinell.Run, lens: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run.rows(f"select * from rows where lens = '{lens}'").arrow().to_pylist()
    return found


def by_profile(run: brinell.Run) -> dict[str, float]:
    own, values = rows(run, "profile"), defaultdict(list)
    right = {(row["model"], row["operator"], row["image"]) for row in own if row["level"] == 0 and row["correct"]}
    for row in own:
        if row["level"] > 0 and (row["model"], row["operator"], row["image"]) in right:
            values[row["model"], row["operator"], row["image"]].append(float(row["correct"]))
    return average(values)


def by_knob(run: brinell.Run) -> dict[str, float]:
    values: dict[tuple[str, str, str], list[float]] = {}
    for row in rows(run, "knob"):
        if row["status"] in ("broken", "survived"):
            key = row["model"], row["operator"], row["image"]
            own = 1.0 if row["status"] == "survived" else abs(row["severity"])
            values[key] = [min(own, *values.get(key, [1.0]))]
    return average(values)


def by_highlights(run: brinell.Run) -> dict[str, float]:
    own, values = [row for row in rows(run, "highlights") if row["operator"] != "highlight:least"], defaultdict(list)
    right = {(row["model"], row["image"]) for row in own if row["level"] == 0 and row["correct"]}
    for row in own:
        if row["level"] > 0 and (row["model"], row["image"]) in right:
            values[row["model"], row["operator"], row["image"]].append(float(row["correct"]))
    return average(values)


def by_fragility(run: brinell.Run) -> dict[str, float]:
    values = defaultdict(list)
    for row in rows(run, "fragility"):
        if row["kind"] in ("loose shift", "loose shrink") and row["judged_by"] == "correct" and row["recognised"]:
            values[row["model"], row["operator"], row["image"]].append(1 - row["lost"] / row["recognised"])
    return average(values)


def by_geometry(run: brinell.Run) -> dict[str, float]:
    values = defaultdict(list)
    for row in rows(run, "geometry"):
        if row["status"] in ("broken", "survived"):
            values[row["model"], row["operator"], row["image"]].append(float(row["status"] == "survived"))
    return average(values)


LOOPS = {
    "profile": by_profile,
    "knob": by_knob,
    "highlights": by_highlights,
    "fragility": by_fragility,
    "geometry": by_geometry,
}


@pytest.mark.parametrize("lens", LOOPS)
def test_it_is_that_of_a_plain_loop(run: brinell.Run, lens: str) -> None:
    found = run.hardness()[lens]
    assert {model: one.value.value for model, one in found.items()} == pytest.approx(LOOPS[lens](run))
    for one in found.values():
        assert 0 <= one.value.low <= one.value.value <= one.value.high <= 100 and one.images <= 12


def test_the_harder_model_is_harder(run: brinell.Run) -> None:
    for lens in ("profile", "knob"):
        found = run.hardness()[lens]
        assert found["hard"].value.value > found["soft"].value.value
    assert run.hardness()["profile"]["hard"].by_operator["fade_white:published"].value == 100


def values(sql: str) -> Scale:
    return Scale("x", "x.", f"select 'a' as model, operator, image, value from ({sql})")


def test_it_names_what_is_clearly_weakest(run: brinell.Run) -> None:
    operators = "(select unnest(['p', 'q', 'r', 's']) as operator)"
    sql = f"select operator, range::varchar as image, {{}} as value from range(20), {operators}"
    clear = measure_hardness(run, values(sql.format("case when operator = 'q' then 0.1 else 0.9 end")))["a"]
    assert clear.weakest == ("q",) and describe_weakest(run, clear) == "q"
    tied = measure_hardness(run, values(sql.format("case when operator = 's' then 0.9 else 0.1 end")))["a"]
    assert tied.weakest == () and describe_weakest(run, tied) == "", "three of four are no weak point"


def test_operators_that_not_all_models_have_count_for_none(run: brinell.Run) -> None:
    rows = "('a', 'p', 'i', 1.0), ('a', 'q', 'i', 0.0), ('b', 'p', 'i', 0.5)"
    found = measure_hardness(run, Scale("x", "x.", f"from (values {rows}) as t(model, operator, image, value)"))
    assert (found["a"].value.value, found["b"].value.value) == (100, 50)
    assert set(found["a"].by_operator) == {"p", "q"}


def test_every_built_in_lens_defines_it(run: brinell.Run) -> None:
    for lens in LENSES.values():
        scale = lens.reader.hardness
        assert scale is not None and scale.meaning.endswith("."), lens.name
    assert [one.lens for one in rate(run)] == list(run.findings())
    assert describe_untested(run) == ["Does the model survive real variants of a scene? (lens: photographs)"]


def test_a_sample_estimates_the_full_run(shared_greys: Path, tmp_path: Path) -> None:
    lens = {"name": "profile", "operators": ["fade_black", "boxes"], "levels": 20}
    given: dict[str, Any] = {"lens": lens, "execution": PLAIN, "quiet": True}
    full = brinell.run("fake:grey:0.4", shared_greys, out=tmp_path / "full", **given).hardness()["profile"]["grey:0.4"]
    part = brinell.run("fake:grey:0.4", shared_greys, out=tmp_path / "part", budget=0.3, **given)
    found = part.hardness()["profile"]["grey:0.4"]
    assert part.sampled and found.images == full.images
    assert found.value.value == pytest.approx(full.value.value, abs=8)
    weights: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    right = {row["image"] for row in rows(part, "profile") if row["level"] == 0 and row["correct"]}
    for row in rows(part, "profile"):
        if row["level"] > 0 and row["image"] in right:
            weights[row["operator"], row["image"]].append((row["correct"] / row["inclusion"], 1 / row["inclusion"]))
    values = {
        ("", operator, image): [sum(value for value, _ in own) / sum(weight for _, weight in own)]
        for (operator, image), own in weights.items()
    }
    assert found.value.value == pytest.approx(average(values)[""])
