"""How long `brinell plan` says that a run takes, compared with how long it takes: lens by lens, on the demo's photographs.

python -m benchmarks estimates

An estimate is followed by the run that it is of, and the whole is repeated, so that other work on the machine slows both.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import brinell
from brinell.api import open_setup
from brinell.config.execution import Execution
from brinell.engine.estimates.plan import plan
from brinell.engine.runner import execute

MODEL, IMAGES, ROUNDS = "efficientnet_lite0", 16, 3
#: runs that are long enough to be probed: presets as a new user runs them, and searches that presets leave out
CASES: dict[str, dict[str, Any]] = {
    "profile, quick": {"name": "profile", "preset": "quick"},
    "knob by bracketing, quick": {"name": "knob", "preset": "quick"},
    "knob, exact": {"name": "knob", "operators": ["fog", "rotation", "brightness", "gaussian_blur"], "points": 60},
    "geometry, quick (random motions and a grid)": {"name": "geometry", "preset": "quick"},
    "geometry, ManiFool": {"name": "geometry", "operators": ["similarity"], "methods": ["manifool"], "targets": 2},
    "fragility, quick": {"name": "fragility", "preset": "quick"},
    "highlights, quick": {"name": "highlights", "preset": "quick"},
    "highlights, with the search": {"name": "highlights", "cells": 3, "search_queries": 100},
}


def measure() -> dict[str, Any]:
    """Estimate and execute each of the runs, several times."""
    model = brinell.open_model(MODEL, Execution())
    rounds = [{name: compare(model, lens) for name, lens in CASES.items()} for _ in range(ROUNDS)]
    return summarise(rounds)


def summarise(rounds: list[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """Return the medians over rounds, by case."""
    cases = {name: _summary([one[name] for one in rounds]) for name in CASES}
    return {"model": MODEL, "cores": os.cpu_count(), "images": IMAGES, "rounds": len(rounds), "cases": cases}


def compare(model: brinell.Model, lens: dict[str, Any]) -> dict[str, Any]:
    """Return the seconds that a run is estimated to take, that the estimate takes, and that the run takes."""
    photos = {"source": "demo-photos", "limit": IMAGES, "shuffle": True}
    with tempfile.TemporaryDirectory() as folder:
        setup = open_setup(model, photos, {"lens": lens, "out": Path(folder) / "run"}, Execution())
        began = time.perf_counter()
        estimated = plan(setup)
        asked = time.perf_counter()
        execute(setup)
        ended = time.perf_counter()
    cost = estimated.costs[0]
    seconds = {"estimate": estimated.seconds, "probe": asked - began, "real": ended - asked}
    return seconds | {
        "passes": cost.forward_passes,
        "how": "at most" if cost.most else "roughly" if cost.rough else "about",
    }


def _summary(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    ratios = [one["estimate"] / one["real"] for one in rounds]
    middle = {name: round(median(one[name] for one in rounds), 1) for name in ("estimate", "probe", "real", "passes")}
    return (
        middle
        | {"how": rounds[0]["how"]}
        | {"ratio": round(median(ratios), 2), "ratios": [round(ratio, 2) for ratio in ratios]}
    )
