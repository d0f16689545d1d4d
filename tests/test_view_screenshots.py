"""The viewer's pictures in README and docs, drawn from the demo's run, or from the tests' own where that is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import brinell
from brinell.viewer.digest import read_digest
from brinell.viewer.headline import headline
from brinell.viewer.open import open_viewer
from brinell.viewer.server import Viewer
from viewing import wait_until

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
DEMO, IMAGES = ROOT / "runs" / "demo", ROOT / "docs" / "images"
SHOTS = {
    "viewer-start": ("#/runs", ".run .lens-name strong", "light", 400),
    "viewer-break": ("#/break?run={run}&image={image}&change=fog:standard&at=0.4", ".chart .u-over", "light", 900),
    "viewer-explore": ("#/explore?run={run}", ".grid-row", "light", 860),
    "viewer-sequence": (
        "#/explore?run={run}&model={model}&image={image}&col={column}",
        ".drawer .verdict.bad",
        "light",
        860,
    ),
    "viewer-maps": ("#/maps?run={run}&lens=highlights&layer=confidence&size=1", "canvas.map", "dark", 900),
    "viewer-compare": ("#/compare?a={run}", ".deltas", "light", 860),
}


@pytest.fixture(scope="module")
def shown(request: pytest.FixtureRequest) -> Iterator[tuple[Viewer, brinell.Run]]:
    run = brinell.Run(DEMO) if (DEMO / "report.html").exists() else request.getfixturevalue("viewed_run")
    with open_viewer([run.folder]) as opened:
        yield opened.start(), run


@pytest.mark.parametrize("name", SHOTS)
def test_screenshots_of_the_documentation(
    chromium: Any, shown: tuple[Viewer, brinell.Run], name: str, request: pytest.FixtureRequest
) -> None:
    """Draws the pictures in docs/images; they are written with `--screenshots` alone."""
    viewer, run = shown
    address, ready, theme, height = SHOTS[name]
    first = headline(read_digest(run))[0]
    weakest = first["weakest"]
    values = {"run": Path(run.folder).name, "model": first["model"], "image": weakest["image"], "column": weakest["column"]}
    context = chromium.new_context(viewport={"width": 1360, "height": height}, color_scheme=theme)
    page = context.new_page()
    page.goto(f"{viewer.url}{address.format(**values)}")
    page.wait_for_selector(ready, timeout=180_000)
    if name == "viewer-maps":
        page.locator(ready).hover(position={"x": 420, "y": 330})
        page.wait_for_selector("section[aria-label='What the model saw'] img")
    wait_until(page, "[...document.images].every((image) => image.complete && image.naturalWidth)")
    page.wait_for_timeout(1000)
    picture = Image.open(BytesIO(page.screenshot()))
    context.close()
    assert np.asarray(picture.convert("L")).std() > 10, "the page is not blank"
    if request.config.getoption("--screenshots"):
        picture.convert("RGB").save(IMAGES / f"{name}.webp", quality=82, method=6)
    assert (IMAGES / f"{name}.webp").stat().st_size < 200_000


def test_the_pictures_are_in_the_documentation() -> None:
    pages = "".join(path.read_text() for path in (ROOT / "README.md", ROOT / "docs/viewer.md", ROOT / "docs/report.md"))
    assert {path.name for path in IMAGES.glob("*.webp")} == {
        path.name for path in IMAGES.glob("*.webp") if f"images/{path.name}" in pages
    }


def test_the_documentation_has_the_measured_times() -> None:
    measured = json.loads((ROOT / "benchmarks" / "results" / "viewer.json").read_text())["runs"]
    for one in measured.values():
        assert one["start"] < 1 and one["image"] < 0.2 and one["brush"] < 0.2
    large, text = measured["20 million"], (ROOT / "docs" / "viewer.md").read_text()
    assert f"first page takes {large['start']:.1f} s" in text
    assert f"change of image {1000 * large['image']:.0f} ms and a brush {1000 * large['brush']:.0f} ms" in text
