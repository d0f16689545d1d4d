"""The fidelity pages are what their stored results generate, so no figure on them is typed by hand."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.page import render_page as render_performance  # noqa: E402
from fidelity import (  # noqa: E402
    bar_page,
    corruptions,
    corruptions_page,
    coverage,
    fragility_page,
    geometry,
    hardening,
    hardening_page,
    highlights,
    highlights_page,
    knob_searches,
    knobs,
    sequential,
    table1,
)
from fidelity.fragility import RESULTS as FRAGILITY  # noqa: E402
from fidelity.glare_results import found_in, images_of  # noqa: E402
from fidelity.photographs import RESULTS as PHOTOGRAPHS  # noqa: E402


def _read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))


PAGES: dict[str, Callable[[], str]] = {
    "fidelity-highlights": lambda: highlights_page.render_page(_read(highlights.RESULTS)),
    "fidelity-corruptions": lambda: corruptions_page.render_page(_read(corruptions.RESULTS), bar_page.read_bar()),
    "fidelity-gates": lambda: sequential.render_page(_read(sequential.RESULTS)),
    "fidelity-knob": lambda: knobs.render_page(_read(knobs.RESULTS)),
    "fidelity-fragility": lambda: fragility_page.render_page(_read(FRAGILITY)),
    "fidelity-hardening": lambda: hardening_page.page(_read(hardening.RESULTS)),
    "fidelity-geometry": lambda: geometry.page(_read(table1.GATHERED), _read(PHOTOGRAPHS)),
    "statistics": lambda: coverage.page([coverage.Coverage(**one) for one in _read(coverage.RESULTS)]),
    "performance": render_performance,
}


@pytest.mark.parametrize("name", PAGES)
def test_page_is_generated_from_stored_results(name: str) -> None:
    assert (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8") == PAGES[name]()


def test_every_experiment_with_highlights_is_stored() -> None:
    results = _read(highlights.RESULTS)
    for name, experiment in highlights.EXPERIMENTS.items():
        assert set(results[name]) == set(experiment.networks), name
    for name in highlights.SALIENCY:
        assert set(results[name]) == set(highlights.NETS), name


def test_stored_findings_agree_with_stored_images() -> None:
    results = _read(highlights.RESULTS)
    found, images = found_in(results["grid"]), images_of(results["grid"])
    for (model, _), glare in found.glare.items():
        own = [one for one in images if one.model == model]
        right = [one for one in own if one.right]
        assert (glare.images, glare.right) == (len(own), len(right))
        assert glare.failing == sum(one.failing for one in right)
        assert glare.at_least[5].value == pytest.approx(sum(one.failing < 5 for one in right) / len(own))
    broken = {
        (image[0], level) for run in results["grid"].values() for image in run["images"] if image[2] for level in image[5]
    }
    assert found.any_model["highlight:exact"].variants == len(broken)


def test_results_of_a_training_replace_those_of_the_same_settings() -> None:
    old = {
        "network": "resnet20",
        "images": 5000,
        "epochs": 5,
        "rate": 0.01,
        "quick": True,
        "quick_test": True,
        "median": 1.0,
    }
    other, again = old | {"rate": 0.001}, old | {"median": 2.0}
    assert hardening.merge_run([old, other], again) == [again, other]
    assert hardening.merge_run([old], other) == [old, other]


def test_searches_are_compared_over_the_images_that_break_in_both() -> None:
    def found(*distances: float | None) -> knob_searches.Found:
        return {
            ("net", "rotation:dsn2020", str(image)): knob_searches.Searched(
                distance, {"clockwise": None if distance is None else round(10 * distance), "anticlockwise": None}, 5
            )
            for image, distance in enumerate(distances)
        }

    exact, bracket = found(0.1, 0.2, 0.9, None), found(0.1, 0.4, None, None)
    assert knob_searches.ratio(bracket, exact) == pytest.approx((0.1 + 0.4) / (0.1 + 0.2)), "not over 0.1, 0.2 and 0.9"
    assert knob_searches.false_survivors(exact, bracket) == (1, 3)
    assert knob_searches.count_moved(exact, bracket) == (2, 3)
    assert knob_searches.count_moved(exact, found(0.1)) == (0, 1), "floats may be of fewer images"
