"""The report: one file that needs nothing else, says what was found, and lets the reader choose."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import brinell
from brinell.errors import ModelError
from conftest import PLAIN

CHROMIUM = Path("/usr/bin/chromium")
TRICK = "<img src=x onerror=alert(1)>"  # a name that would be an element if it were not escaped
MODELS = ("grey:0.25", f"{TRICK}</script><!--<script>")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> brinell.Run:
    """Two models on ten images with one that can't be read; classes, files and a model have names like elements."""
    folder = tmp_path_factory.mktemp("report")
    rows = ["file_name,label"]
    for index in range(10):
        Image.fromarray(np.full((20, 24, 3), 100 + 12 * index, np.uint8)).save(folder / f"{index}.png")
        rows.append(f"{index}.png,{TRICK}")
    (folder / f"{TRICK}.png").write_bytes(b"")
    (folder / "metadata.csv").write_text("\n".join([*rows, f"{TRICK}.png,dark"]))
    (folder / "classes.txt").write_text(f"{TRICK}\ndark\n")
    return brinell.run(
        [
            {"source": "fake:grey:0.25", "classes": str(folder / "classes.txt")},
            {"source": "fake:grey:0.45", "classes": str(folder / "classes.txt"), "name": MODELS[1]},
        ],
        folder,
        lens={"name": "profile", "operators": ["fade_black", "boxes", "fade_white"], "levels": 20},
        select="correct",
        out=folder / "run",
        execution=PLAIN,
        quiet=True,
    )


@pytest.fixture(scope="module")
def page(run: brinell.Run) -> str:
    return Path(run.report()).read_text()


def without_scripts(page: str) -> str:
    return re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)


def test_it_is_self_contained(page: str) -> None:
    loads = re.findall(
        r"""(?:src|href|srcset|data|action)\s*=\s*["']([^"']*)|url\(([^)]*)\)|@import""", without_scripts(page)
    )
    assert loads
    assert all(place.startswith(("data:image/webp;base64,", "#")) for place, _ in loads)
    assert not re.search(r"<(link|iframe|object|embed)\b|<script\b[^>]*\bsrc", page.partition("<script>")[0])


def test_it_says_what_was_found(run: brinell.Run, page: str) -> None:
    text = re.sub(r"\s+", " ", without_scripts(page))
    summary = run.summary()
    assert summary.verdict("grey:0.25") in text
    assert text.count("first drops below 90, 50 and 10 %") == 1
    for operator in ("fade to black", "black boxes", "fade to white"):
        assert f"<tr><th>{operator}</th>" in text
    half = summary.failure_point("grey:0.25", "fade_black:published", 0.5)
    assert half.level
    assert f'level {half.level}<br><span class="soft">{half.caption}</span>' in text
    assert '<span class="never">never</span>' in text, "nothing gets dark by fading to white"


def test_it_shows_pictures(page: str) -> None:
    assert "What failure looks like" in page and "Images that break first" in page
    assert page.count("accuracy below 50 %: ") == 2, "one sheet per model"
    assert page.count('alt="clean"') == page.count('alt="changed"') >= 2 * 2 * 3
    assert re.search(r"changed: dark, \d+% confident", page)


def test_it_says_what_was_left_out_and_how_it_was_made(run: brinell.Run, page: str) -> None:
    text = re.sub(r"\s+", " ", page)
    left = run.rows("select count(distinct index) from clean where not kept").fetchall()[0][0]
    assert left > 0
    assert f"{10 - left} images were measured out of 11. 1 could not be read" in text
    assert f"{left} were excluded by the selection “correct”" in text
    assert "&lt;img src=x onerror=alert(1)&gt;.png</th><td>the file is empty</td>" in text
    for fact in (
        "&#34;fingerprint&#34;",
        "&#34;seed&#34;: 0",
        "&#34;torch&#34;: &#34;",
        "&#34;select&#34;: &#34;correct&#34;",
    ):
        assert fact in text, "the manifest is there"


def test_names_are_text_and_never_elements(page: str) -> None:
    assert TRICK not in page
    assert "&lt;img src=x onerror=alert(1)&gt;, " in page, "as a class in captions"
    assert page.count("<script>") == page.count("</script>") == 2
    assert "<!--" not in page.rpartition("<script>")[2]


class Dim(nn.Module):
    """Gives NaN once images are dark: the run stops there."""

    def forward(self, images: Tensor) -> Tensor:
        level = images.mean((1, 2, 3))
        return torch.stack([torch.where(level < 0.2, torch.nan, level), level * 0], 1)


def test_an_unfinished_run_says_so(greys: Path, tmp_path: Path) -> None:
    model = brinell.wrap(Dim(), size=16, classes=["light", "dark"], execution=PLAIN)
    lens = {"name": "profile", "operators": ["fade_white", "fade_black"], "levels": 10}
    with pytest.raises(ModelError):
        brinell.run(model, greys, lens=lens, out=tmp_path / "run", execution=PLAIN, quiet=True)
    assert "This run is not finished." in Path(brinell.Run(tmp_path / "run").report()).read_text()


def test_findings_need_neither_torch_nor_what_shows_them() -> None:
    code = """
import sys
from brinell.lenses.lens import LENSES
for lens in LENSES.values():
    assert lens.reader.columns is not None
heavy = {"torch", "altair", "rich", "jinja2"} & set(sys.modules)
assert not heavy, heavy
for lens in LENSES.values():
    assert lens.show.section
assert "torch" not in sys.modules
"""
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr


# ---- in a browser ----


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    if not CHROMIUM.exists():
        pytest.skip(f"needs a browser at {CHROMIUM}")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield opened
        opened.close()


def test_in_a_browser_without_network(browser: Any, run: brinell.Run, page: str) -> None:
    tab = browser.new_page(offline=True)
    requested: list[str] = []
    said: list[str] = []
    tab.on("request", lambda request: requested.append(request.url))
    tab.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("dialog", lambda dialog: (said.append("a dialog"), dialog.dismiss()))
    tab.goto(f"file://{run.store.path('report.html')}")
    for chart in ("average", "operators", "areas"):
        tab.wait_for_selector(f"#chart-{chart} svg.marks path")

    def drawn(chart: str) -> str:
        return str(tab.inner_html(f"#chart-{chart} svg.marks"))

    seen = {drawn("average")}
    for measure in ("rank", "probability", "confidence"):
        tab.select_option("#chart-average select", measure)
        tab.wait_for_timeout(200)
        seen.add(drawn("average"))
    assert len(seen) == 4, "each measure draws another chart"
    before = drawn("operators")
    menu = tab.locator("#chart-operators select").filter(has=tab.locator("option", has_text="grey:0.25"))
    options = menu.locator("option").all_inner_texts()
    assert sorted(options) == sorted(MODELS)
    menu.select_option(index=1)
    tab.wait_for_timeout(200)
    assert drawn("operators") != before, "each model draws another chart"
    broken = tab.evaluate("[...document.images].filter(i => i.offsetParent && !i.naturalWidth).length")
    assert (broken, said) == (0, [])
    assert {url.partition(":")[0] for url in requested} <= {"file", "data", "blob"}
