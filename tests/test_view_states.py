"""What pages show when there is nothing to show, or when something is missing: empty pages, errors, and what to do."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import brinell
from brinell.viewer.open import open_viewer
from brinell.viewer.server import Viewer
from viewing import DROP, Tab, inspect_page, wait_until

pytestmark = pytest.mark.slow
EMPTY = {
    "": "No runs here yet",
    "#/break": "Nothing to break yet",
    "#/explore": "No runs here yet",
    "#/maps": "No runs here yet",
    "#/compare": "Nothing to compare",
    "#/watch": "No runs here yet",
    "#/nothing": "There is no such page",
}


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Viewer]:
    with open_viewer([str(tmp_path_factory.mktemp("empty"))]) as opened:
        yield opened.start()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("address", EMPTY)
def test_pages_without_runs_say_what_to_do(chromium: Any, empty: Viewer, address: str, theme: str) -> None:
    found = inspect_page(chromium, f"{empty.url}{address}", f"text={EMPTY[address]}", width=390, theme=theme)
    assert found.problems == []
    assert (
        "brinell demo" in found.text or "brinell run" in found.text or "terminal" in found.text or "All runs" in found.text
    )


@pytest.mark.parametrize("page", ["explore", "maps", "break"])
def test_a_link_to_a_run_that_is_gone_leads_back(chromium: Any, viewer: Viewer, page: str) -> None:
    context = chromium.new_context()
    tab = Tab(context.new_page(), viewer.url.rstrip("/"))
    opened = tab.open(f"#/{page}?run=gone")
    opened.get_by_role("alert").wait_for()
    assert "gone" in opened.get_by_role("alert").inner_text()
    opened.get_by_role("link", name="All runs").click()
    opened.wait_for_selector(".run h2")
    context.close()
    assert all("404" in problem or "422" in problem for problem in tab.problems), "no more than the refused request"


def test_a_file_that_is_no_photograph_is_refused_with_the_reason(chromium: Any, viewer: Viewer) -> None:
    context = chromium.new_context()
    tab = Tab(context.new_page(), viewer.url.rstrip("/"))
    page = tab.open("#/break?run=first&models=efficientnet_lite0")
    page.wait_for_selector(".chart .u-over")
    page.evaluate(DROP, ["notes.txt", base64.b64encode(b"no photograph").decode()])
    page.get_by_role("alert").wait_for()
    said = page.get_by_role("alert").inner_text()
    context.close()
    assert "can't be read" in said or "image" in said
    assert all("422" in problem for problem in tab.problems)


def test_pictures_whose_data_moved_say_how_to_get_them(chromium: Any, viewed_run: brinell.Run, tmp_path: Path) -> None:
    folder = tmp_path / "moved"
    shutil.copytree(viewed_run.folder, folder, ignore=shutil.ignore_patterns("viewer"))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["source"]["data"]["source"] = str(tmp_path / "gone")
    (folder / "manifest.json").write_text(json.dumps(manifest))
    image = next(iter(viewed_run.image_names))
    with open_viewer([str(folder)]) as opened:
        opened.start()
        page = chromium.new_page()
        page.goto(f"{opened.url}#/explore?run=moved&image={image}&col=0")
        page.wait_for_selector(".drawer .picture.missing")
        said = page.locator(".drawer .picture.missing").first.inner_text()
        wait_until(page, "[...document.querySelectorAll('.thumb')].some((one) => one.naturalWidth > 0)")  # stored exhibits
        page.close()
    assert "No image here." in said and "--data" in said
