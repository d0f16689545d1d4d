"""How the time of a run grows with its images, levels, operators and models: `python -m benchmarks.linear`.

One of the four is varied at a time. Runs alternate over several rounds, after one that is not counted: it measures batch
sizes, which later runs of the process reuse.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import altair as alt
import numpy as np

import brinell
from benchmarks.end_to_end import operators
from benchmarks.photographs import photographs
from brinell.api import open_setup
from brinell.config.execution import Execution
from brinell.engine.runner import execute
from brinell.report.panels import PALETTE

HERE = Path(__file__).parent
RESULT, FIGURE = HERE / "results" / "linear.json", HERE.parent / "docs" / "figures" / "linear.svg"
MODEL, ROUNDS = "efficientnet_lite0", 3
USUAL = {"images": 12, "levels": 20, "operators": 3, "models": 1}
VARIED = {
    "images": [6, 12, 24, 48],
    "levels": [5, 10, 15, 20, 25, 30],
    "operators": [1, 2, 4, 6, 8],
    "models": [1, 2, 3, 4],  # the same network under several names
}


def seconds_of(model: brinell.Model, images: list[Any], sizes: dict[str, int]) -> float:
    """Return how long a run takes, without opening its model."""
    models = [replace(model, name=f"network {number + 1}") for number in range(sizes["models"])]
    lens = {"name": "profile", "operators": operators()[: sizes["operators"]], "levels": sizes["levels"]}
    data = {"source": [(image, None) for image in images[: sizes["images"]]], "labels": "prediction"}
    with tempfile.TemporaryDirectory() as folder:
        setup = open_setup(models, data, {"lens": lens, "out": folder}, Execution())
        began = time.perf_counter()
        execute(setup)
        return time.perf_counter() - began


def fit(sizes: list[int], seconds: list[float]) -> dict[str, float]:
    """Return the line through times, and how far they are from it."""
    slope, intercept = np.polyfit(sizes, seconds, 1)
    line = intercept + slope * np.array(sizes)
    apart = np.array(seconds) - line
    explained = 1 - (apart**2).sum() / ((np.array(seconds) - np.mean(seconds)) ** 2).sum()
    return {
        "slope": float(slope),
        "intercept": float(intercept),
        "r2": float(explained),
        "deviation": float(np.abs(apart / line).max()),
    }


def measure() -> dict[str, Any]:
    """Measure all runs, and fit a line to the medians of each variation."""
    images, model = photographs(max(VARIED["images"])), brinell.open_model(MODEL, Execution())
    seconds_of(model, images, {**USUAL, "models": max(VARIED["models"])})
    taken: dict[str, dict[int, list[float]]] = {what: {size: [] for size in sizes} for what, sizes in VARIED.items()}
    for _ in range(ROUNDS):
        for what, sizes in VARIED.items():
            for size in sizes:
                taken[what][size].append(seconds_of(model, images, {**USUAL, what: size}))
                print(what, size, f"{taken[what][size][-1]:.2f}", flush=True)
    varied = {
        what: {"seconds": found, "fit": fit(list(found), [median(times) for times in found.values()])}
        for what, found in taken.items()
    }
    return {"model": MODEL, "cores": os.cpu_count(), "rounds": ROUNDS, "usual": USUAL, "varied": varied}


def draw(found: dict[str, Any]) -> alt.HConcatChart:
    """Return a panel for each of the four: medians, the rounds behind them as small circles, and the fitted line."""
    varied = found["varied"]
    top = 1.06 * max(time for one in varied.values() for times in one["seconds"].values() for time in times)
    panels = [_panel(what, one, PALETTE[index], top) for index, (what, one) in enumerate(varied.items())]
    return (
        alt.hconcat(*panels, spacing=22)
        .configure(background="white", font="sans-serif")
        .configure_view(stroke=None)
        .configure_axis(labelFontSize=10, titleFontSize=12, titleFontWeight="normal", gridColor="#eeeeee")
        .configure_title(fontSize=12, fontWeight="normal", color="#555555", anchor="start", offset=8)
    )


def _panel(what: str, one: dict[str, Any], colour: str, top: float) -> alt.LayerChart:
    sizes, line = [int(size) for size in one["seconds"]], one["fit"]
    ends = [{"size": end, "seconds": line["intercept"] + line["slope"] * end} for end in (0, max(sizes))]
    rounds = [{"size": int(size), "seconds": time} for size, times in one["seconds"].items() for time in times]
    middles = [{"size": int(size), "seconds": median(times)} for size, times in one["seconds"].items()]
    across = alt.Scale(domain=[0, 1.04 * max(sizes)], nice=False)
    x = alt.X("size:Q", title=what, scale=across, axis=alt.Axis(values=[0, *sizes], grid=False))
    up = alt.Scale(domain=[0, top], nice=False)
    y = alt.Y("seconds:Q", title="seconds" if what == "images" else None, scale=up, axis=alt.Axis(tickCount=5))
    fitted = alt.Chart(alt.InlineData(values=ends)).mark_line(color=colour, strokeWidth=1.5, opacity=0.6)
    small = alt.Chart(alt.InlineData(values=rounds)).mark_point(color=colour, size=14, opacity=0.5, strokeWidth=1)
    large = alt.Chart(alt.InlineData(values=middles)).mark_point(color=colour, filled=True, size=44, opacity=0.9)
    each = f"{line['slope']:.2f} s per {what[:-1]}, R² = {line['r2']:.4f}"
    layers = [layer.encode(x=x, y=y) for layer in (fitted, small, large)]
    return alt.layer(*layers).properties(width=178, height=190, title=each)


def main() -> None:
    """Measure, store the result, and draw it."""
    found = measure()
    RESULT.write_text(json.dumps(found, indent=1) + "\n")
    draw(json.loads(RESULT.read_text())).save(FIGURE)


if __name__ == "__main__":
    main()
