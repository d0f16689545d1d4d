"""The report: one file that needs nothing else, says what was found, and lets the reader choose."""

from __future__ import annotations

import csv
import html
import io
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import brinell
from brinell.errors import ModelError
from brinell.report.figures import start_drawing
from brinell.report.section import to_csv
from conftest import PLAIN

CHROMIUM = Path("/usr/bin/chromium")
ROOT = Path(__file__).parents[1]
DEMO, IMAGES = ROOT / "runs" / "demo", ROOT / "docs" / "images"
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
    known = ("data:image/jpeg;base64,", "data:text/csv;charset=utf-8,", "#")
    assert all(place.startswith(known) for place, _ in loads)
    assert not re.search(r"<(link|iframe|object|embed)\b|<script\b[^>]*\bsrc", page)
    assert "vega" not in page.lower(), "figures are drawn already"


def test_it_begins_with_a_card_for_each_model(run: brinell.Run, page: str) -> None:
    first = page.partition("<h2 id=")[0]
    hardness = run.hardness()["profile"]
    for model in MODELS:
        value = hardness[model].value
        assert f"degradations: hardness {value.value:.0f} [{value.low:.0f}–{value.high:.0f}]" in first
    assert first.count("What breaks it most easily") == 2 and first.count("✗ wrong") == 4
    assert "What is the smallest change that breaks the model? (lens: knob)" in first, "what was not tested"
    assert 'href="#hardness"' in first and 'id="hardness"' in page, "the definition is one click away"


def test_it_says_what_was_found(run: brinell.Run, page: str) -> None:
    text = re.sub(r"\s+", " ", without_scripts(page))
    summary = run.summary()
    assert summary.verdict("grey:0.25") in text
    assert text.count("first drops below 90, 50 and 10 %") == 1
    for operator in ("fade to black", "black boxes", "fade to white"):
        assert f'<th scope="row">{operator}</th>' in text
    half = summary.failure_point("grey:0.25", "fade_black:published", 0.5)
    assert half.level
    assert f'level {half.level}<span class="detail">{half.caption}</span>' in text
    assert "<td>never</td>" in text, "nothing gets dark by fading to white"


def test_it_shows_pictures_before_methods(page: str) -> None:
    assert page.index("What breaks first") < page.index("How it was tested")
    assert page.index("One image where accuracy drops below 50%") < page.index("How it was tested")
    alts = re.findall(r'alt="([^"]*)"', page)
    assert all(alts) and any(re.fullmatch(r"\d\.png, fade to black, .*: dark, \d+% confident", alt) for alt in alts)
    assert '<span class="tag">median</span>' in page, "a typical image next to the extremes"
    assert "✓ right" in page and "✗ wrong" in page, "not by colour alone"


def test_each_picture_is_there_once(page: str) -> None:
    sources = re.findall(r'src="(data:image/jpeg[^"]+)"', page)
    repeated = re.findall(r'data-same="([^"]+)"', page)
    assert len(sources) == len(set(sources)) and repeated
    assert set(repeated) <= set(re.findall(r'<img id="([^"]+)"', page))


def test_csv_files_hold_the_rows(run: brinell.Run, page: str) -> None:
    (link,) = re.findall(r'download="profiles.csv" href="data:text/csv;charset=utf-8,([^"]+)"', page)
    records = list(csv.DictReader(io.StringIO(unquote(html.unescape(link)))))
    own = {
        (record["model"], record["operator"], int(record["level"])): float(record["value"])
        for record in records
        if record["operator"] != "average"
    }
    sql = "select model, operator, level, avg(correct::int) from rows group by all"
    expected = {(model, operator, level): value for model, operator, level, value in run.rows(sql).fetchall()}
    assert own == pytest.approx(expected)


def test_csv_is_safe_in_a_spreadsheet() -> None:
    text = to_csv([{"name": "=1+1", "value": float("nan")}, {"name": "a,b", "more": 2}])
    assert text == 'name,value,more\n\'=1+1,,\n"a,b",,2\n'


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
    assert page.count("<script>") == page.count("</script>") == 1
    assert "<!--" not in page


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


def test_the_renderer_of_charts_starts_without_a_chart() -> None:
    """Commands start it in the background, where an error would not be seen."""
    start_drawing()


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


@pytest.fixture
def browser(chromium: Any) -> Any:
    return chromium


@pytest.fixture
def tab(browser: Any, run: brinell.Run, page: str) -> Iterator[Any]:
    """The page in a browser that is offline; errors, warnings, dialogs and requests fail the test."""
    opened = browser.new_page(offline=True, viewport={"width": 1300, "height": 900})
    requested: list[str] = []
    said: list[str] = []
    opened.on("request", lambda request: requested.append(request.url))
    opened.on("console", lambda message: said.append(message.text) if message.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("dialog", lambda dialog: (said.append("a dialog"), dialog.dismiss()))
    opened.goto(f"file://{run.store.path('report.html')}")
    yield opened
    opened.close()
    assert said == []
    assert {url.partition(":")[0] for url in requested} <= {"file", "data", "blob"}


def test_in_a_browser_without_network(tab: Any) -> None:
    assert tab.locator("#figure-profiles .panel svg").count() == 4, "three operators and their average"
    assert "grey:0.25, level 0: 100% [67–100%]" in tab.locator("#figure-profiles .panel svg path title").all_text_contents()
    tab.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert tab.evaluate("[...document.images].filter(i => !i.naturalWidth).length") == 0
    assert tab.evaluate("document.documentElement.scrollWidth") <= 1300


def test_a_median_image_is_next_to_the_first_one(tab: Any) -> None:
    medians = tab.locator(".pairs .tag", has_text="median").locator("visible=true")
    assert medians.count() >= 2
    heading = medians.first.locator("xpath=ancestor::figure/preceding-sibling::figure[1]//b").inner_text()
    operator = medians.first.locator("xpath=following-sibling::b").inner_text().partition(",")[0]
    assert heading.partition(",")[0] == operator


def test_tables_can_be_sorted(tab: Any) -> None:
    table = tab.locator("table.sortable").first

    def column() -> list[float]:
        return [
            float(cell)
            for cell in table.locator("tbody td:nth-child(2)").evaluate_all("all => all.map(c => c.dataset.sort)")
        ]

    table.locator("button.sort").nth(1).click()
    assert column() == sorted(column()) and len(set(column())) > 1
    table.locator("button.sort").nth(1).click()
    assert column() == sorted(column(), reverse=True)
    assert table.locator("th[aria-sort=descending]").count() == 1


def test_figures_are_saved_as_svg(tab: Any, tmp_path: Path) -> None:
    with tab.expect_download() as download:
        tab.locator("#figure-profiles button.svg").click()
    download.value.save_as(tmp_path / "profiles.svg")
    drawn = ElementTree.parse(tmp_path / "profiles.svg").getroot()
    text = (tmp_path / "profiles.svg").read_text()
    assert drawn.tag.endswith("}svg") and "var(" not in text and "fade to black" in text and "grey:0.25" in text


def test_a_picture_opens_large_and_closes(tab: Any) -> None:
    tab.locator(".pair-figure img").first.click()
    assert tab.locator("dialog img").first.bounding_box()["width"] > tab.locator(".card img").first.bounding_box()["width"]
    tab.keyboard.press("Escape")
    assert not tab.locator("dialog").is_visible()


def test_light_dark_phone_and_print(tab: Any) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    assert tab.evaluate(ground) == "rgb(255, 255, 255)"
    tab.locator("button.theme").click()
    assert tab.evaluate(ground) == "rgb(18, 23, 29)"
    tab.set_viewport_size({"width": 390, "height": 800})
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390, "nothing but tables scrolls sideways"
    tab.emulate_media(media="print")
    assert tab.evaluate(ground) == "rgb(255, 255, 255)", "dark pages are printed on white"
    assert not tab.locator("nav.toc").is_visible() and not tab.locator(".tools").is_visible()
    assert not tab.locator("details.on-screen").first.is_visible() and tab.locator("p.printed").first.is_visible()
    assert tab.evaluate("document.querySelectorAll('details[data-opened]').length") == 0, "closed again after printing"


def test_a_printed_page_keeps_pictures_as_jpeg(tab: Any) -> None:
    """Browsers store other pictures pixel by pixel, which made a file of 33 MB of the demo's report."""
    shown = tab.evaluate("[...document.images].filter(one => one.checkVisibility()).length")
    pdf = tab.pdf(format="A4")
    assert pdf.count(b"/DCTDecode") == pdf.count(b"/Subtype /Image") > 0.3 * shown, "some are on the page twice"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_has_no_serious_accessibility_violations(tab: Any, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
    tab.emulate_media(color_scheme=scheme)
    tab.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    found = axe.Axe().run(tab).response["violations"]
    serious = [one for one in found if one["impact"] in ("serious", "critical")]
    assert not serious, [(one["id"], one["nodes"][0]["html"][:300]) for one in serious]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["report", "report-card"])
def test_screenshots_of_the_documentation(browser: Any, name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Draws the pictures of docs/report.md from the demo's run; they are written with `--screenshots` alone."""
    if not (DEMO / "manifest.json").exists():
        pytest.skip("needs the demo's run: make demo")
    demo = brinell.Run(DEMO)
    if name == "report":
        tab = browser.new_page(viewport={"width": 1360, "height": 1000})
        tab.goto(f"file://{demo.report(out=tmp_path / 'report.html')}")
        picture = Image.open(io.BytesIO(tab.screenshot()))
        tab.close()
    else:
        cards = [card for card in demo.cards() if card.endswith(".png")]
        drawn = Image.open(io.BytesIO(demo.store.read("cards", cards[0]))).convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", drawn.size, "white"), drawn)  # its corners are round
        picture.thumbnail((1100, 1100))
    assert np.asarray(picture.convert("L")).std() > 20, "the page is not blank"
    if request.config.getoption("--screenshots"):
        picture.convert("RGB").save(IMAGES / f"{name}.webp", quality=82, method=6)
    assert (IMAGES / f"{name}.webp").stat().st_size < 200_000
