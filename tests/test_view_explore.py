"""Explore, Maps, Compare, Watch and bundles in a real browser; screenshots for the documentation."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from PIL import Image

import brinell
from brinell.lenses.lens import LENSES
from brinell.lenses.reader import FAILURE_COLUMNS
from brinell.viewer.digest import read_digest
from brinell.viewer.headline import headline
from brinell.viewer.open import bundle_runs
from brinell.viewer.server import Viewer
from brinell.viewer.tables import connect
from viewing import Tab, inspect_page, wait_until

pytestmark = pytest.mark.slow
MODEL = "efficientnet_lite0"


def breaking_within(run: brinell.Run, lens: str, operator: str, share: float) -> set[str]:
    """Return, by SQL over the rows, the images that are right when clean and break at an intensity below a share."""
    failures = LENSES[lens].reader.failures
    assert failures is not None
    files = [file for file in run.store.unit_files() if f"/rows/{lens}/" in file]
    sql = f"""select distinct image from ({failures.query(run.lens(lens))}) as failed({", ".join(FAILURE_COLUMNS)})
              semi join (select model, image from clean where correct) using (model, image)
              where model = $model and operator = $operator and intensity < $most"""
    with connect(run, files) as connection:
        found = connection.execute(sql, {"model": MODEL, "operator": operator, "most": 100 * share}).fetchall()
    return {image for (image,) in found}


def column_of(run: brinell.Run, lens: str, name: str) -> tuple[int, str]:
    columns = read_digest(run).columns
    return next(
        (n, one.operator) for n, one in enumerate(columns) if one.lens == lens and one.operator.startswith(f"{name}:")
    )


def test_brushes_select_what_sql_selects(tab: Tab, viewed_run: brinell.Run) -> None:
    (fog, fog_id), (turn, turn_id) = column_of(viewed_run, "knob", "fog"), column_of(viewed_run, "knob", "rotation")
    page = tab.open(f"#/explore?run=first&model={MODEL}")
    page.wait_for_selector(".grid-row")
    everything = len(viewed_run.image_names)
    assert page.locator("#selected").inner_text() == f"{everything} images"
    wait_until(page, "document.querySelectorAll('.panels .card > p.small').length >= 5")  # sentences move the charts down
    charts = page.locator(".histogram")
    titles = charts.locator(".histogram-head .clip").all_inner_texts()
    for title, last in (("fog", 9), ("rotation", 2)):
        page.wait_for_timeout(300)  # until the charts stand still again after the brush before
        bars = charts.nth(titles.index(title)).locator(".bin")
        bars.nth(0).hover()
        page.mouse.down()
        end = bars.nth(last).bounding_box()
        page.mouse.move(end["x"] + end["width"] / 2, end["y"] + end["height"] / 2, steps=8)
        page.mouse.up()
        wait_until(page, f"location.hash.includes('.0-{last}')")
    both = breaking_within(viewed_run, "knob", fog_id, 1.001) & breaking_within(viewed_run, "knob", turn_id, 0.3)
    assert page.locator("#selected").inner_text().split()[0] == str(len(both))
    shown = {link.get_attribute("href") for link in page.locator(".grid-row .who").all()}
    assert {re.search(r"image=(\w+)", str(link))[1] for link in shown} == both  # type: ignore[index]
    assert f"f={fog}.0-9%2C{turn}.0-2" in page.url
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_selector("#selected")
    assert page.locator("#selected").inner_text().split()[0] == str(len(both)), "a brush is a link"


def test_a_cell_opens_its_sequence(tab: Tab, viewed_run: brinell.Run) -> None:
    number, operator = column_of(viewed_run, "profile", "white_fog")
    page = tab.open(f"#/explore?run=first&model={MODEL}&sort=fragile")
    page.locator(".grid-row").first.locator(".cell").nth(number).click()
    page.wait_for_selector(".drawer .point")
    image = re.search(r"image=(\w+)", page.url)[1]  # type: ignore[index]
    rows = viewed_run.query(
        "select level, correct, mse from rows where lens = 'profile' and model = $model and operator = $operator "
        "and image = $image and level > 0 order by level",
        {"model": MODEL, "operator": operator, "image": image},
    )
    classes = [point.get_attribute("class") for point in page.locator(".drawer .point").all()]
    assert [name == "point good" for name in classes] == [correct for _, correct, _ in rows]
    page.locator(".drawer .point").nth(4).click()
    wait_until(page, "location.hash.includes('at=5')")
    distance = float(page.locator(".facts tr", has_text="MSE").locator("td").inner_text())
    assert distance == pytest.approx(rows[4][2], rel=0.01)
    for mode in ("Flicker", "Difference", "Saliency"):
        page.get_by_role("button", name=mode).click()
        page.wait_for_selector({"Difference": ".drawer canvas", "Saliency": ".drawer .over img"}.get(mode, ".drawer .over"))
    page.keyboard.press("ArrowUp")
    wait_until(page, "location.hash.includes('at=6')")
    page.keyboard.press("Escape")
    wait_until(page, "!document.querySelector('.drawer')")


def test_maps_show_what_the_model_saw(tab: Tab, viewed_run: brinell.Run) -> None:
    image = next(iter(viewed_run.image_names))
    page = tab.open(f"#/maps?run=first&model={MODEL}&image={image}&lens=highlights&size=1")
    page.locator("canvas.map").hover(position={"x": 60, "y": 60})
    page.wait_for_selector("section[aria-label='What the model saw'] img")
    x, y = (
        int(word)
        for word in page.locator(".facts tr", has_text="centre").locator("td").inner_text().rstrip(" px").split(",")
    )
    ((prediction,),) = viewed_run.query(
        "select prediction from rows where lens = 'highlights' and model = $model and image = $image and level > 0 "
        "and sigma = 60 and round(spot_x) = $x and round(spot_y) = $y",
        {"model": MODEL, "image": image, "x": x, "y": y},
    )
    name = str(viewed_run.models[MODEL].class_name(prediction)).partition(",")[0]
    assert page.locator("section[aria-label='What the model saw'] strong").inner_text() == name
    page.locator("canvas.map").press("ArrowRight")
    page.locator("label.inline", has_text="Size").locator("input").fill("0")
    page.get_by_text("a spot of light, σ 30 px").wait_for()
    drawn = lambda: page.evaluate("document.querySelector('canvas.map').toDataURL()")  # noqa: E731
    whole = drawn()
    page.locator("canvas.map").hover(position={"x": 60, "y": 60})
    page.mouse.wheel(0, -400)
    page.wait_for_timeout(300)
    assert drawn() != whole, "the wheel zooms in"
    page.locator("label.choice", has_text="Map").locator("select").select_option("confidence")
    wait_until(page, "location.hash.includes('layer=confidence')")


def test_two_models_are_compared(tab: Tab, viewed_run: brinell.Run) -> None:
    page = tab.open("#/compare?a=first")
    page.wait_for_selector(".deltas")
    page.wait_for_selector(".panels .card")
    compared = brinell.compare(viewed_run)
    assert page.locator(".compare h2").first.inner_text() == compared.pairs[0].title
    first = compared.select(0, "area")[0]
    row = (
        page.locator("div", has=page.locator("h3", has_text="mean accuracy over all levels")).last.locator("tbody tr").first
    )
    assert row.locator("td").nth(3).inner_text() == f"{first.worse} / {first.better}"


def test_a_run_in_progress_is_watched(chromium: Any, viewed_run: brinell.Run, tmp_path: Path) -> None:
    """A run without its last units and without its end: totals, what is left, and figures so far."""
    import json
    import shutil

    from brinell.viewer.open import open_viewer

    folder = tmp_path / "going"
    shutil.copytree(viewed_run.folder, folder, ignore=shutil.ignore_patterns("viewer"))
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest.pop("finished")
    (folder / "manifest.json").write_text(json.dumps(manifest))
    shutil.rmtree(folder / "rows" / "geometry")
    hidden = sorted((folder / "rows" / "knob").rglob("*.parquet"))[-1]
    content = hidden.read_bytes()
    hidden.unlink()
    with open_viewer([str(folder)]) as opened:
        opened.start()
        page = chromium.new_page()
        page.goto(f"{opened.url}#/watch?run=going")
        page.wait_for_selector(".so-far .meter-row")
        job = page.locator(".jobs li", has_text="knob").last.locator(".num")
        done, total = map(int, job.inner_text().split(" / "))
        assert done == total - 1
        hidden.write_bytes(content)
        wait_until(page, f"[...document.querySelectorAll('.jobs .num')].some((e) => e.innerText === '{total} / {total}')")
        assert "units/min" in page.locator(".tiles").inner_text()
        manifest["finished"] = True
        (folder / "manifest.json").write_text(json.dumps(manifest))
        page.get_by_role("heading", name="Finished").wait_for(timeout=180_000)
        assert "units/min" not in page.locator(".tiles").inner_text(), "times of files say nothing about a copied run"
        page.close()


@pytest.fixture(scope="module")
def bundle(viewed_run: brinell.Run, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bundle behind Python's plain web server."""
    folder = tmp_path_factory.mktemp("bundle") / "site"
    bundle_runs([viewed_run.folder], folder, images=2)
    command = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        assert server.stdout is not None
        port = re.search(r"port (\d+)", server.stdout.readline())[1]  # type: ignore[index]
        yield f"http://127.0.0.1:{port}"
        server.terminate()


def test_a_bundle_needs_no_viewer(chromium: Any, bundle: str, viewed_run: brinell.Run) -> None:
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    tab = Tab(context.new_page(), bundle)
    page = tab.open("")
    page.wait_for_selector(".run .lens-name strong")
    page.get_by_role("link", name="Explore").last.click()
    page.wait_for_selector(".grid-row")
    number, _ = column_of(viewed_run, "profile", "white_fog")
    page.locator(".grid-row").first.locator(".cell").nth(number).click()
    page.wait_for_selector(".drawer .picture img")
    page.goto(f"{bundle}/#/break")
    page.get_by_text("brinell view RUN").wait_for()
    page.wait_for_selector(".picture.changed img")
    for address, shown in (
        ("maps?run=first", "canvas.map"),
        ("compare?a=first", ".deltas"),
        ("watch?run=first", ".jobs li"),
    ):
        page.goto(f"{bundle}/#/{address}")
        page.wait_for_selector(shown)
    # the image that the maps page begins with need not be in the bundle
    problems = [one for one in tab.problems if "404" not in one]
    context.close()
    assert problems == []


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("explore?run=first", ".grid-row"),
        ("explore?run=first&image={image}&col=0", ".drawer .point"),
        ("maps?run=first", "canvas.map"),
        ("compare?a=first", ".deltas"),
        ("watch?run=first", ".jobs li"),
    ],
)
def test_pages_are_accessible_and_fit(
    chromium: Any, viewer: Viewer, viewed_run: brinell.Run, address: str, shown: str, width: int, theme: str
) -> None:
    address = f"{viewer.url}#/{address.format(image=next(iter(viewed_run.image_names)))}"
    assert inspect_page(chromium, address, shown, width=width, theme=theme).problems == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("runs", ".run .lens-name strong"),
        ("break?run=first", ".picture.changed img"),
        ("explore?run=first", ".grid-row"),
        ("maps?run=first", "canvas.map"),
        ("compare?a=first", ".deltas"),
        ("watch?run=first", ".jobs li"),
    ],
)
def test_pages_of_a_bundle_are_accessible_and_fit(chromium: Any, bundle: str, address: str, shown: str, theme: str) -> None:
    assert inspect_page(chromium, f"{bundle}/#/{address}", shown, width=390, theme=theme).problems == []


def test_originals_are_served_as_they_are(viewer: Viewer, viewed_run: brinell.Run) -> None:
    image = next(iter(viewed_run.image_names))
    with urlopen(f"{viewer.url}api/runs/first/originals/{image}.webp") as response:
        picture = Image.open(BytesIO(response.read()))
    ((width, height),) = viewed_run.query("select width, height from samples where image = $image", {"image": image})
    assert picture.size == (width, height) and response.headers["X-Content-Type-Options"] == "nosniff"


def test_hardness_is_that_of_the_report(viewed_run: brinell.Run) -> None:
    """Of every lens, also where one of its operators counts only without the others."""
    measured = viewed_run.hardness()
    for one in headline(read_digest(viewed_run)):
        assert [each["lens"] for each in one["hardness"]] == list(measured)
        for each in one["hardness"]:
            assert each["value"] == pytest.approx(measured[each["lens"]][one["model"]].value.value, abs=1e-3)
