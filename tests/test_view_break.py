"""The start page and "Break it" in a real browser: sliders against rows, a photograph dropped in, links and keys."""

from __future__ import annotations

import base64
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import pytest
from PIL import Image

import brinell
from brinell.viewer.digest import read_digest
from brinell.viewer.headline import headline
from brinell.viewer.server import Viewer
from viewing import DROP, inspect_page, wait_until

pytestmark = pytest.mark.slow
FOG = "white_fog:published"


def shown_answers(page: Any) -> dict[str, tuple[str, str, float]]:
    """Return, by model, the verdict, the top class and its probability in percent, as the page shows them."""
    found = {}
    for card in page.locator(".answer").all():
        name = card.locator("h3 .clip").inner_text()
        bar = card.locator(".bars li").first
        number = bar.locator(".num").inner_text().removesuffix(" %")
        found[name] = (
            card.locator(".verdict").inner_text().strip(),
            bar.locator(".clip").inner_text().strip(),
            float(number),
        )
    return found


def stored_answers(run: brinell.Run, image: str, operator: str, level: int) -> dict[str, tuple[str, str, float]]:
    rows = run.query(
        "select model, correct, prediction, confidence from rows where lens = 'profile' and image = $image "
        "and operator = $operator and level = $level",
        {"image": image, "operator": operator, "level": level},
    )
    return {
        model: (
            "holds" if correct else "broken",
            str(run.models[model].class_name(prediction)).partition(",")[0],
            100 * confidence,
        )
        for model, correct, prediction, confidence in rows
    }


def assert_same(shown: dict[str, Any], stored: dict[str, Any]) -> None:
    assert shown.keys() == stored.keys()
    for model, (verdict, top, share) in stored.items():
        assert shown[model][:2] == (verdict, top)
        assert shown[model][2] == pytest.approx(share, abs=0.6)


def test_the_start_page_lists_runs(tab: Any, viewed_run: brinell.Run) -> None:
    page = tab.open("")
    page.wait_for_selector(".run .lens-name strong")
    card = page.locator(".run").first
    assert card.locator("h2 a").inner_text() == "first"
    assert "4 images" in card.inner_text() and card.locator(".tag").all_inner_texts() == [*viewed_run.lenses]
    wait_until(page, "document.querySelector('.run .thumb')?.naturalWidth > 0")
    page.keyboard.press("/")
    page.keyboard.type("no such run")
    page.get_by_text("No run matches").wait_for()
    assert "q=no+such+run" in page.url


def test_the_start_page_leads_to_what_breaks_a_model_first(tab: Any, viewed_run: brinell.Run) -> None:
    page = tab.open("")
    weakest = {one["model"]: one["weakest"] for one in headline(read_digest(viewed_run))}
    for model, found in weakest.items():
        page.get_by_role("link", name=f"See what {found['title']} does to {model}").click()
        page.wait_for_selector(".drawer .verdict.bad")
        assert page.locator(".drawer h2 .clip").first.inner_text() == found["title"]
        wait_until(
            page, "[...document.querySelectorAll('.drawer .picture img')].filter((one) => one.naturalWidth).length === 2"
        )
        page.go_back()


@pytest.mark.parametrize("mode", ["live", "stored"])
def test_the_slider_shows_what_the_rows_say(tab: Any, viewed_run: brinell.Run, mode: str) -> None:
    image = next(iter(viewed_run.image_names))
    column = FOG if mode == "live" else f"profile/{FOG}"
    page = tab.open(f"#/break?run=first&image={image}&change={column}&mode={mode}&at=3")
    page.wait_for_selector(".chart .u-over")
    assert_same(shown_answers(page), stored_answers(viewed_run, image, FOG, 3))
    page.locator("#level").fill("12")
    wait_until(page, "location.hash.includes('at=12')")
    page.wait_for_timeout(300)
    assert_same(shown_answers(page), stored_answers(viewed_run, image, FOG, 12))
    page.locator("body").press("ArrowDown")
    wait_until(page, "location.hash.includes('at=11')")
    page.wait_for_timeout(300)
    assert_same(shown_answers(page), stored_answers(viewed_run, image, FOG, 11))


def test_the_image_is_the_one_that_the_model_saw(tab: Any, viewer: Viewer, viewed_run: brinell.Run) -> None:
    """The changed picture has the distance from the clean one that the row stores."""
    image = next(iter(viewed_run.image_names))
    page = tab.open(f"#/break?run=first&image={image}&change=profile/{FOG}&mode=stored&at=5")
    wait_until(page, "document.querySelectorAll('.pair img').length === 2")
    sources = [page.locator(".pair img").nth(number).get_attribute("src") for number in (0, 1)]
    clean, changed = (np.asarray(Image.open(urlopen(f"{viewer.url}{source}")), np.float64) / 255 for source in sources)
    ((stored,),) = viewed_run.query(
        "select mse from rows where lens = 'profile' and model = 'efficientnet_lite0' and operator = $operator "
        "and image = $image and level = 5",
        {"operator": FOG, "image": image},
    )
    assert ((clean - changed) ** 2).mean() == pytest.approx(stored, rel=1e-4)


def photograph() -> bytes:
    from skimage.data import astronaut

    sink = BytesIO()
    Image.fromarray(astronaut()).save(sink, "png")
    return sink.getvalue()


def test_a_photograph_is_dropped_in_and_broken(tab: Any, tmp_path: Path) -> None:
    page = tab.open("#/break?run=first&models=efficientnet_lite0")
    page.wait_for_selector(".chart .u-over")
    page.evaluate(DROP, ["astronaut.png", base64.b64encode(photograph()).decode()])
    wait_until(page, "location.hash.includes('photo=')")
    page.locator(".changes button", has_text="rotation").first.click()
    page.wait_for_selector(".chart .u-over")
    page.get_by_text("Find the breaking point").click()
    page.wait_for_selector(".slider p[role=status]")
    note = page.locator(".slider p[role=status]").inner_text()
    assert "breaks at" in note and "queries" in note
    page.wait_for_selector(".answer .verdict.bad")
    assert page.locator(".slider output").first.inner_text() in note, "the slider stands at the breaking point"

    page.get_by_role("button", name="Python").click()
    page.get_by_text("Copied").wait_for()
    code = page.evaluate("navigator.clipboard.readText()")
    (tmp_path / "astronaut.png").write_bytes(photograph())
    printed = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    top = shown_answers(page)["efficientnet_lite0"]
    assert top[1] in printed.splitlines()[0], "the copied Python prints the same answer"


def test_a_copied_command_draws_the_image(tab: Any, tmp_path: Path) -> None:
    page = tab.open("#/break?run=first&models=efficientnet_lite0")
    page.wait_for_selector(".chart .u-over")
    page.evaluate(DROP, ["astronaut.png", base64.b64encode(photograph()).decode()])
    wait_until(page, "location.hash.includes('photo=')")
    page.locator(".changes button", has_text="white fog").first.click()
    page.wait_for_selector(".chart .u-over")
    page.locator("#level").fill("9")
    page.get_by_role("button", name="Command").click()
    page.get_by_text("Copied").wait_for()
    command = page.evaluate("navigator.clipboard.readText()")
    assert command == (
        "brinell show astronaut.png --model efficientnet_lite0 --operator white_fog:published --level 9 --out changed.png"
    )
    with page.expect_download() as download:
        page.get_by_role("link", name="Save image").click()
    (tmp_path / "astronaut.png").write_bytes(photograph())
    subprocess.run([sys.executable, "-m", *command.split()], cwd=tmp_path, capture_output=True, check=True)
    saved, drawn = (np.asarray(Image.open(path)) for path in (download.value.path(), tmp_path / "changed.png"))
    (height, width), (tall, wide) = saved.shape[:2], drawn.shape[:2]
    places = [(y, x) for y in range(tall - height + 1) for x in range(wide - width + 1)]
    assert any(np.array_equal(drawn[y : y + height, x : x + width], saved) for y, x in places), "a sheet with that image"


def test_links_and_keys(tab: Any, viewed_run: brinell.Run) -> None:
    first, second = (image for (image,) in viewed_run.query("select image from samples order by index limit 2"))
    page = tab.open(f"#/break?run=first&image={first}&change=fog:standard&at=0.4&models=efficientnet_lite1")
    page.wait_for_selector(".chart .u-over")
    assert page.locator(".slider label strong").inner_text() == "fog"
    assert page.locator("#level").input_value() == "0.4"
    assert list(shown_answers(page)) == ["efficientnet_lite1"]
    page.keyboard.press("ArrowRight")
    wait_until(page, f"location.hash.includes('{second}')")
    page.go_back()
    wait_until(page, f"location.hash.includes('{first}')")
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("address", ["#/runs", "#/break?run=first", f"#/break?run=first&mode=stored&change=profile/{FOG}"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pages_are_accessible_and_fit(chromium: Any, viewer: Viewer, address: str, width: int, theme: str) -> None:
    shown = ".run .lens-name strong" if "runs" in address else ".bars li .num"
    assert inspect_page(chromium, f"{viewer.url}{address}", shown, width=width, theme=theme).problems == []
