"""One layout for every lens: models in one order, data and drawing of every figure, contents, pictures before methods."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import brinell
from brinell.report.exhibits import _heading
from brinell.report.figures import draw_panel, draw_svg
from brinell.report.order import order_table
from brinell.report.page import render_template
from brinell.report.panels import line_panel, number_axis, share_axis
from brinell.report.section import Cell, Table
from conftest import PLAIN

ROOT = Path(__file__).parents[1]
#: neither by name nor by strength: the first breaks at the darkest grey
MODELS = {"hard": 0.2, "weak": 0.5, "b": 0.35}
LENSES: list[dict[str, Any]] = [
    {"name": "profile", "operators": ["fade_black", "white_fog"], "levels": 8},
    {"name": "knob", "operators": ["brightness", "fog"], "points": 10},
    {"name": "highlights", "cells": 3, "sigmas": [4, 8], "search_queries": 10},
    {"name": "fragility", "sizes": [0.5], "stride": 8},
    {"name": "geometry", "operators": ["translation"], "methods": ["random"], "radii": [1, 4], "draws": 4},
]


@pytest.fixture(scope="module")
def run(shared_greys: Path, tmp_path_factory: pytest.TempPathFactory) -> brinell.Run:
    models = [{"source": f"fake:grey:{grey}", "name": name} for name, grey in MODELS.items()]
    out = tmp_path_factory.mktemp("layout") / "run"
    return brinell.run(models, shared_greys, lens=LENSES, out=out, execution=PLAIN, quiet=True)


@pytest.fixture
def tab(chromium: Any, run: brinell.Run) -> Iterator[Any]:
    opened = chromium.new_page(viewport={"width": 1300, "height": 900})
    opened.goto(f"file://{run.report()}")
    yield opened
    opened.close()


def in_order(names: list[str]) -> list[str]:
    """Return a list of models in the run's order."""
    return sorted(names, key=list(MODELS).index)


def test_models_are_in_the_order_of_the_run_everywhere(tab: Any) -> None:
    assert tab.locator(".card h2").all_inner_texts() == list(MODELS)
    tab.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    lists = [
        *tab.locator("thead tr").evaluate_all("rows => rows.map(row => [...row.cells].map(cell => cell.innerText.trim()))"),
        *tab.locator(".verdicts").evaluate_all(
            "lists => lists.map(list => [...list.children].map(one => one.innerText.split(/[ :]/)[0]))"
        ),
    ]
    named = [[name for name in one if name in MODELS] for one in lists]
    assert sum(len(one) > 1 for one in named) >= 12
    assert all(one == in_order(one) for one in named), named
    headings = tab.locator("main h3, main summary, main h4").evaluate_all(
        "all => all.map(one => one.matches('h4') ? one.innerText : '\\n').join(' ')"
    )
    galleries = [line.split() for line in headings.splitlines() if len(line.split()) > 1]
    assert len(galleries) >= 3 and all(one == in_order(one) for one in galleries), galleries


def test_columns_of_models_are_ordered_with_their_cells() -> None:
    cells = [Cell("row"), Cell("1"), Cell("2"), Cell("3"), Cell("4")]
    grouped = Table(["what", "x", "y", "x", "y"], [cells], groups=[("", 1), ("second", 2), ("first", 2)])
    found = order_table(grouped, ["first", "second"])
    assert [cell.text for cell in found.rows[0]] == ["row", "3", "4", "1", "2"]
    assert list(found.groups) == [("", 1), ("first", 2), ("second", 2)] and list(found.heads) == [
        "what",
        "x",
        "y",
        "x",
        "y",
    ]
    plain = order_table(Table(["what", "second", "first"], [cells[:3]]), ["first", "second"])
    assert list(plain.heads) == ["what", "first", "second"] and [cell.text for cell in plain.rows[0]] == ["row", "2", "1"]


def test_every_figure_has_its_data_and_its_drawing(tab: Any) -> None:
    figures = tab.locator("figure.figure")
    assert figures.count() >= 6
    for figure in figures.all():
        assert figure.locator("a[download$='.csv']").count() == 1 and figure.locator("button.svg").count() == 1
        assert len(figure.locator("[role=img]").first.get_attribute("aria-label")) > 30
        assert figure.locator(".panel svg").count() >= 1


#: the texts of an SVG that are not inside it, and would be cut off
CUT_OFF = """() => {
    const [width, height] = ["width", "height"].map(side => Number(document.documentElement.getAttribute(side)));
    return [...document.querySelectorAll("text")].filter(one => {
        const box = one.getBoundingClientRect();
        return box.left < -1 || box.top < -1 || box.right > width + 1 || box.bottom > height + 1;
    }).map(one => one.textContent);
}"""


@pytest.mark.parametrize("name", ["operators", "areas", "robustness", "random"])
def test_files_have_room_for_their_texts(chromium: Any, run: brinell.Run, name: str, tmp_path: Path) -> None:
    """DejaVu Sans, the usual font of Linux, is wider than others."""
    (tmp_path / "figure.svg").write_text(draw_svg(run.figure(name)))
    shown = chromium.new_page()
    shown.goto(f"file://{tmp_path / 'figure.svg'}")
    assert shown.locator("text").count() > 5 and shown.evaluate(CUT_OFF) == []
    shown.close()


@pytest.mark.parametrize("low", [0.01, 0.02, 0.05])
def test_numbers_on_axes_are_apart(chromium: Any, low: float) -> None:
    ends = [{"model": "a", "x": x, "value": 0.5} for x in (low, 10 * low)]
    x = number_axis("x", "x", axis={"tickCount": 10}, scale={"type": "log", "nice": False})
    shown = chromium.new_page()
    shown.set_content(draw_panel(line_panel(ends, ["a"], title="", x=x, y=share_axis("value"))))
    boxes = shown.evaluate(
        """[...document.querySelectorAll("text:not([opacity='0'])")].filter(one => /^0[.]\\d+$/.test(one.textContent))
            .map(one => one.getBoundingClientRect()).map(box => [box.left, box.right])"""
    )
    shown.close()
    boxes.sort()
    assert len(boxes) >= 4 and all(one[1] < other[0] for one, other in pairwise(boxes)), boxes


def test_legends_have_room_on_phones_and_in_files(tab: Any, tmp_path: Path) -> None:
    tab.set_viewport_size({"width": 390, "height": 800})
    tab.evaluate("document.querySelectorAll('.legend span').forEach(one => { one.append('n'.repeat(15)); })")
    with tab.expect_download() as download:
        tab.locator("#figure-profiles button.svg").click()
    download.value.save_as(tmp_path / "profiles.svg")
    tab.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    long = "document.querySelectorAll('.legend span, .card h2, .sort, h4').forEach(one => { one.append('n'.repeat(80)); })"
    tab.evaluate(long)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    tab.goto(f"file://{tmp_path / 'profiles.svg'}")
    names = tab.locator("svg > text").all_text_contents()
    assert sorted(names) == sorted(f"{model}{'n' * 15}" for model in MODELS)
    assert not set(names) & set(tab.evaluate(CUT_OFF))


def test_the_contents_lead_to_all_sections(tab: Any) -> None:
    links = tab.locator("nav.toc a").evaluate_all("all => all.map(one => one.getAttribute('href'))")
    titles = tab.locator("main > h2[id]").evaluate_all("all => all.map(one => '#' + one.id)")
    assert links == ["#overview", *titles] and len(titles) == len(LENSES) + 3


def test_each_lens_shows_what_breaks_before_how_it_was_tested(tab: Any) -> None:
    """Random motions, too: of each image, the weakest of those that were drawn."""
    order = tab.evaluate(
        """[...document.querySelectorAll("main > h2[id^=lens], main .pairs, main summary")].map((one) =>
            one.matches("h2") ? one.id : one.matches(".pairs") ? "pictures" : one.innerText)"""
    )
    for lens in ("profile", "knob", "fragility", "geometry"):  # light breaks no model that looks for light images
        start = order.index(f"lens-{lens}")
        assert "pictures" in order[start : order.index("How it was tested", start)], lens
    assert "px" in tab.locator("#lens-geometry ~ .pairs figcaption b").first.inner_text()


def test_a_picture_names_its_change_once() -> None:
    assert _heading("motion blur", "5 px") == "motion blur, 5 px"
    assert _heading("fog", "40 % fog") == "40 % fog"


def test_a_section_without_a_criterion_names_none() -> None:
    facts = {"manifest": {"identity": {"config": {"data": {"labels": "given"}}}}}
    assert "criterion" not in render_template("facts.html", {**facts, "content": {"options": {"criterion": ""}}})
    assert "“top 5”" in render_template("facts.html", {**facts, "content": {"options": {"criterion": "top_5"}}})


def test_heads_of_tables_are_repeated_on_paper(tab: Any) -> None:
    """Chromium leaves buttons out of the heads that it repeats on the next sheet."""
    tab.emulate_media(media="print")
    assert set(tab.locator("button.sort").evaluate_all("all => all.map(one => getComputedStyle(one).display)")) == {
        "contents"
    }


def test_dark_pages_are_printed_on_white_and_long_names_in_full(tab: Any) -> None:
    tab.emulate_media(media="print", color_scheme="dark")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    tab.set_viewport_size({"width": 700, "height": 1000})  # of A4 within its margins
    table = tab.locator("#lens-profile ~ .scroll table").first
    table.evaluate("one => one.querySelectorAll('th:not(:first-child) .sort').forEach(head => head.append('n'.repeat(60)))")
    assert table.evaluate("one => one.getBoundingClientRect().width") <= 700


def test_the_documentation_has_the_measured_size_and_time() -> None:
    measured = json.loads((ROOT / "benchmarks" / "results" / "report.json").read_text())
    text = (ROOT / "docs" / "report.md").read_text()
    assert measured["megabytes"] < 10 and max(measured["seconds_to_open"]) < 2
    assert f"{measured['megabytes']:.1f} MB" in text and f"{max(measured['seconds_to_open']):.1f} s" in text


def test_a_curve_has_one_point_for_each_amount(run: brinell.Run) -> None:
    """Images that break at the same amount would make a line run to and fro."""
    from brinell.lenses.knob.charts import amount_panels
    from brinell.lenses.knob.findings import READER

    findings: Any = READER.find(run, run.lens("knob"), {})
    curves = [
        {"model": "b", "operator": operator, "direction": "darker", "amount": amount, "share": share}
        for operator in findings.operators
        for amount, share in ((1.0, 0.0), (0.5, 0.25), (0.5, 0.5), (0.25, 1.0))
    ]
    for panel in amount_panels(findings, curves):
        values = panel.to_dict()["data"]["values"]
        assert sorted((one["amount"], one["value"]) for one in values) == [(0.25, 1.0), (0.5, 0.5), (1.0, 0.0)]
