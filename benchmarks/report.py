"""The report of five lenses, three models and 50 photographs: its size, and the time to write and to open it.

Models are simple and levels few, so that the run takes minutes: the page's size depends on the pictures, of which there are
as many as in a full run, and hardly on the number of rows.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import brinell

CHROMIUM = "/usr/bin/chromium"
IMAGES, REPEATS = 50, 3
MODELS = [
    {"source": f"fake:grey:{threshold}", "name": f"model {threshold}", "size": 224} for threshold in (0.35, 0.4, 0.45)
]
LENSES: list[dict[str, Any]] = [
    {"name": "profile", "levels": 3},
    {"name": "knob", "points": 4},
    {"name": "highlights", "cells": 3, "sigmas": [20, 40], "search_queries": 10},
    {"name": "fragility", "sizes": [0.4, 0.7], "stride": 0.1},
    {"name": "geometry", "operators": ["rotation"], "methods": ["random"], "radii": [0.5, 1], "draws": 2},
]


def measure() -> dict[str, Any]:
    """Return the page's size in MB, and the seconds that writing and opening it take."""
    data = {"source": "demo-photos", "limit": IMAGES, "labels": "prediction"}
    with tempfile.TemporaryDirectory() as folder:
        run = brinell.run(MODELS, data, lens=LENSES, out=Path(folder) / "run", quiet=True)
        start = time.perf_counter()
        page = Path(run.report())
        written = time.perf_counter() - start
        return {
            "images": IMAGES,
            "lenses": len(LENSES),
            "models": len(MODELS),
            "megabytes": page.stat().st_size / 1e6,
            "pictures": page.read_text().count("data:image/"),
            "seconds_to_write": written,
            "seconds_to_open": [_open(page) for _ in range(REPEATS)],
        }


def _open(page: Path) -> float:
    """Return the seconds until a browser has loaded the page and drawn it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page()
        start = time.perf_counter()
        tab.goto(f"file://{page}")
        tab.evaluate("new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
        seconds = time.perf_counter() - start
        browser.close()
    return seconds
