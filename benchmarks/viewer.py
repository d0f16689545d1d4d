"""The viewer on runs of one and of twenty million rows, in Chromium: first page, change of image, and brush.

`python -m benchmarks.viewer FOLDER IMAGES` makes such a run: images, samples and clean answers are real, and the rows are
generated, since measuring twenty million takes hours.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import brinell
from brinell.config.execution import Execution
from brinell.perturb.operator import find_operator, operator_names
from brinell.runs.arrow import ROWS_TABLE
from brinell.runs.schema import Unit
from brinell.runs.store import digest_of
from brinell.viewer.digest import read_digest
from brinell.viewer.open import open_viewer

COUNTS = {"1 million": 2_500, "20 million": 50_000}  # rows, and the images that they are about
OPERATORS, LEVELS, SHARD = 14, 28, 1024
REPEATS = 9
CHROMIUM = "/usr/bin/chromium"


def measure() -> dict[str, Any]:
    """Return seconds by size of the run; medians of several repeats."""
    found = {}
    for name, images in COUNTS.items():
        with tempfile.TemporaryDirectory() as folder:
            run = make_run(Path(folder), images)
            found[name] = {"rows": images * OPERATORS * (LEVELS + 1), "images": images, **measure_pages(run)}
    return {"operators": OPERATORS, "runs": found}


def make_run(folder: Path, images: int) -> brinell.Run:
    """Write a run of so many images, each under some operators at some levels."""
    generator = np.random.default_rng(0)
    pixels = generator.integers(90, 256, (images, 32, 32, 3), dtype=np.uint8)
    np.savez(folder / "images.npz", images=pixels, labels=np.zeros(images, np.int64))
    run = brinell.run(
        "fake:grey:0.3",
        folder / "images.npz",
        lens={"name": "profile", "operators": ["fade_black"], "levels": 1},
        out=folder / "run",
        execution=Execution(batch=256, shard=SHARD, runtime="torch"),
        quiet=True,
    )
    names = [name for name in operator_names() if not find_operator(name).white_box][:OPERATORS]
    operators = [find_operator(name) for name in names]
    manifest = run.store.manifest()
    for config in (manifest["identity"]["config"], manifest["source"]):
        config["lenses"][0] |= {"levels": LEVELS, "operators": [operator.id for operator in operators]}
    manifest["operators"] = {operator.id: operator.describe() for operator in operators}
    ids = [image for (image,) in run.query("select image from samples order by index")]
    run.store.remove("rows")
    run.store.write_manifest(manifest)
    run.store.run = digest_of(manifest)
    for name in ("samples", "clean"):
        run.store.write_table(name, run.store.table(name))
    for operator in operators:
        for shard, start in enumerate(range(0, images, SHARD)):
            unit = Unit("profile", "grey:0.3", operator.id, shard)
            run.store.write_unit(unit, _rows(unit, ids[start : start + SHARD], generator))
    return brinell.Run(folder / "run")


def _rows(unit: Unit, ids: list[str], generator: np.random.Generator) -> pa.Table:
    """Return rows of images that break at random levels, and some never."""
    count, levels = len(ids), LEVELS + 1
    level = np.tile(np.arange(levels, dtype=np.int16), count)
    correct = level < np.repeat(generator.integers(1, 2 * levels, count), levels)
    probability = np.clip(1 - level / 40 + generator.normal(0, 0.02, len(level)), 0, 1).astype(np.float32)
    known: dict[str, pa.Array] = {
        "image": pa.DictionaryArray.from_arrays(np.repeat(np.arange(count, dtype=np.int32), levels), ids),
        "label": pa.array(np.zeros(len(level), np.int32)),
        "level": pa.array(level),
        "amount": pa.array(level.astype(np.float32)),
        "prediction": pa.array((~correct).astype(np.int32)),
        "correct": pa.array(correct),
        "rank": pa.array((~correct).astype(np.int32)),
        "probability": pa.array(probability),
        "confidence": pa.array(np.maximum(probability, 1 - probability)),
        **{
            name: pa.array((level / 100).astype(np.float32)) for name in ("mse", "mae", "l1", "l2", "linf", "l0", "changed")
        },
    }
    for name, value in (("lens", unit.lens), ("model", unit.model), ("operator", unit.operator)):
        known[name] = pa.DictionaryArray.from_arrays(np.zeros(len(level), np.int32), [value])
    return pa.table([known.get(field.name, pa.nulls(len(level), field.type)) for field in ROWS_TABLE], schema=ROWS_TABLE)


def measure_pages(run: brinell.Run) -> dict[str, float]:
    """Return the seconds of what people wait for."""
    from playwright.sync_api import sync_playwright

    began = time.perf_counter()
    digest = read_digest(run)
    times = {"digest": time.perf_counter() - began}
    with open_viewer([run.folder]) as viewer, sync_playwright() as playwright:
        viewer.start()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])

        def first(address: str, shown: str) -> float:
            page = browser.new_page()
            start = time.perf_counter()
            page.goto(f"{viewer.url}{address}")
            page.wait_for_selector(shown)
            seconds = time.perf_counter() - start
            page.close()
            return seconds

        times["start"] = _median(lambda _: first("#/runs", ".run .lens-name strong"))
        times["explore"] = _median(lambda _: first("#/explore", ".grid-row .cell"))
        page = browser.new_page()
        page.goto(f"{viewer.url}#/break?mode=stored&change=profile/{digest.columns[0].operator}&at=9")
        page.wait_for_selector(".picture.changed img")

        def change(number: int) -> None:
            image = digest.images["id"][number + 1]
            page.keyboard.press("ArrowRight")
            page.wait_for_selector(f".picture.changed img[src*='{image}']")

        times["image"] = _median(change)
        page.goto(f"{viewer.url}#/explore")
        page.wait_for_selector(".grid-row .cell")

        def brush(number: int) -> None:
            # one press of a key, timed in the page: from the event to the next frame with the new selection
            page.locator(".histogram").nth(number).locator(".bin").nth(3).focus()
            times["brushed"] = page.evaluate(_BRUSH)

        brushes = []
        for number in range(REPEATS):
            brush(number % OPERATORS)
            brushes.append(times.pop("brushed") / 1000)
            page.get_by_text("Clear selection").click()
            page.wait_for_timeout(100)
        times["brush"] = statistics.median(brushes)
        browser.close()
    return {name: round(seconds, 3) for name, seconds in times.items()}


_BRUSH = """() => new Promise((done) => {
    const field = document.querySelector("#selected"), before = field.innerText, start = performance.now();
    document.activeElement.click();
    const look = () => (field.innerText === before ? requestAnimationFrame(look) : done(performance.now() - start));
    requestAnimationFrame(look);
})"""


def _median(work: Callable[[int], Any]) -> float:
    """Return the median seconds of some repeats; a function that returns seconds has measured them itself."""
    found = []
    for number in range(REPEATS):
        start = time.perf_counter()
        own = work(number)
        found.append(own if isinstance(own, float) else time.perf_counter() - start)
    return statistics.median(found)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir(parents=True, exist_ok=True)
    made = make_run(place, int(sys.argv[2]))
    print(json.dumps(measure_pages(made), indent=1))
