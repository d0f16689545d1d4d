"""Figures of the viewer as files, and its grid by keyboard, in a real browser."""

from __future__ import annotations

import csv
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import brinell
from brinell.viewer.digest import STRONGEST, SURVIVED, WRONG, read_digest
from viewing import wait_until

pytestmark = pytest.mark.slow
FOG = "white_fog:published"


def saved(page: Any, button: str) -> str:
    """Return the content of the file that a button saves."""
    with page.expect_download() as download:
        page.get_by_role("button", name=button).click()
    return Path(download.value.path()).read_text()


def test_the_curve_is_saved_as_the_rows_have_it(tab: Any, viewed_run: brinell.Run) -> None:
    image = next(iter(viewed_run.image_names))
    page = tab.open(f"#/break?run=first&image={image}&change=profile/{FOG}&mode=stored&at=3")
    page.wait_for_selector(".chart .u-over")
    name = "Save curve-white_fog-published as"
    rows = list(csv.DictReader(StringIO(saved(page, f"{name} CSV"))))
    for model in viewed_run.models:
        stored = viewed_run.query(
            "select probability, correct from rows where lens = 'profile' and model = $model and image = $image "
            "and operator = $operator and level > 0 order by level",
            {"model": model, "image": image, "operator": FOG},
        )
        assert [float(row[f"{model} probability"]) for row in rows[1:]] == pytest.approx([one for one, _ in stored])
        assert [row[f"{model} broken"] == "false" for row in rows[1:]] == [correct for _, correct in stored]
    drawing = ElementTree.fromstring(saved(page, f"{name} SVG"))
    words = [each.text for each in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert {*viewed_run.models, "white fog: probability of the right class"} <= set(words)


def test_the_grid_and_its_histograms_are_saved(tab: Any, viewed_run: brinell.Run) -> None:
    page = tab.open("#/explore?run=first")
    page.wait_for_selector(".grid-row")
    digest, model = read_digest(viewed_run), "efficientnet_lite0"
    rows = {row["image"]: row for row in csv.DictReader(StringIO(saved(page, "Save first-first-failures as CSV")))}
    assert set(rows) == set(digest.images["id"])
    for number, column in enumerate(digest.columns):
        for position, image in enumerate(digest.images["id"]):
            text, code = (
                rows[image][f"{column.lens} {column.operator} first failure"],
                digest.cells[model].first[number, position],
            )
            expected = 1 if code == SURVIVED else code / STRONGEST
            assert text == "" if code >= WRONG and code != SURVIVED else float(text) == pytest.approx(expected)
    counts = list(csv.DictReader(StringIO(saved(page, "Save first-knob-first-failures as CSV"))))
    tested = sum(int(code) < WRONG or code == SURVIVED for code in digest.cells[model].first[2])
    assert sum(int(row["images"]) for row in counts if row["operator"] == digest.columns[2].title) == tested
    assert saved(page, "Save first-knob-first-failures as SVG").startswith("<svg")


def test_the_grid_is_walked_by_keyboard(tab: Any) -> None:
    page = tab.open("#/explore?run=first")
    page.wait_for_selector(".grid-row")
    page.locator(".grid-body").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
        page.wait_for_timeout(50)
    focused = "document.activeElement.getAttribute('data-cell')"
    wait_until(page, f"{focused} === '1-1'")
    page.keyboard.press("Enter")
    page.wait_for_selector(".drawer")
    assert "col=1" in page.url
    page.keyboard.press("Escape")
    page.wait_for_selector(".drawer", state="detached")
    assert page.evaluate(focused) == "1-1", "the keyboard goes on where it was"


def test_tables_of_compare_are_sorted(tab: Any) -> None:
    page = tab.open("#/compare?a=first")
    table = page.locator(".deltas").nth(1)
    table.wait_for()
    titles = lambda: table.locator("tbody th").all_inner_texts()  # noqa: E731
    before = titles()
    table.get_by_role("button", name="operator").click()
    assert titles() == sorted(before, key=str.casefold) and len(before) > 1
    table.get_by_role("button", name="operator").click()
    assert titles() == sorted(before, key=str.casefold, reverse=True)
