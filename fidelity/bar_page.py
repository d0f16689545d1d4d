"""The part of docs/fidelity-corruptions.md about ImageNet-C-bar, and about many draws of one corruption of ImageNet-C."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from brinell.lenses.profile.robustness import ALEXNET, SEVERITIES
from fidelity.words import grid, signed

RESULTS = Path(__file__).parent / "results" / "corruptions_bar.json"
MOVES = ("moved", "far")  # statistics of caustics alone
CLEARLY = 3  # standard errors
TITLES = {
    "change": "mean change",
    "red": "red",
    "green": "green",
    "blue": "blue",
    "deviation": "standard deviation",
    "slope": "slope of the spectrum",
    "covered": "covered, %",
    "patches": "patches",
    "patch": "pixels of a patch",
    "moved": "moved by, pixels",
    "far": "moved by more than 2 pixels, %",
}


def read_bar() -> dict[str, Any]:
    """Return what is stored about ImageNet-C-bar, by side and name."""
    found: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    return found


def render_bar(results: dict[str, Any]) -> dict[str, Any]:
    """Return what the page says about ImageNet-C-bar."""
    gaps = [
        (abs(cell[4] / cell[5]) if cell[5] else 0.0, int(side), name, severity, key, cell)
        for side, held in results.items()
        for name, found in held.items()
        for severity, cells in enumerate(found["severities"], 1)
        for key, cell in cells.items()
    ]
    clear = sorted((gap for gap in gaps if gap[0] > CLEARLY), reverse=True)
    inverse = results["224"]["inverse_sparkles"]
    strongest = inverse["severities"][-1]["change"]
    return {
        "bar_tables": {side: _changes(results[side]) for side in results},
        "bar_patterns": _patterns(results["224"]),
        "bar_moved": _moved(results["224"]["caustic_refraction"]["severities"]),
        "bar_cells": len(gaps),
        "bar_clear": _clear(clear),
        "bar_clear_count": len(clear),
        "bar_largest": max(gap[0] for gap in gaps),
        "bar_inverse": strongest,
        "bar_spread": strongest[5] * inverse["draws"] ** 0.5,
    }


def _difference(cell: list[float], digits: int) -> str:
    return f"{signed(cell[4], digits)} ± {cell[5]:.{digits}f}"


def _changes(held: dict[str, Any]) -> str:
    """Return the mean change in grey levels, by corruption and severity."""
    lines = []
    for name, found in sorted(held.items()):
        cells = [cells["change"] for cells in found["severities"]]
        lines.append([f"`{name}`", str(found["draws"]), *(f"{one[0]:.1f}, {_difference(one, 2)}" for one in cells)])
    return grid(["mean change", "draws", *(f"severity {one}" for one in range(1, SEVERITIES + 1))], lines)


def _patterns(held: dict[str, Any]) -> str:
    """Return the other statistics at severity 3, by corruption."""
    keys = [key for key in TITLES if key not in ("change", *MOVES)]
    lines = []
    for name, found in sorted(held.items()):
        cells = [found["severities"][2][key] for key in keys]
        lines.append([f"`{name}`", *(f"{cell[0]:.1f}, {_difference(cell, 1)}" for cell in cells)])
    return grid(["severity 3", *(TITLES[key] for key in keys)], lines)


def _moved(severities: list[dict[str, list[float]]]) -> str:
    """Return how far caustics move pixels, by severity."""
    lines = [[TITLES[key], *(f"{one[key][0]:.2f}, {_difference(one[key], 2)}" for one in severities)] for key in MOVES]
    return grid(["caustics", *(f"severity {one}" for one in range(1, SEVERITIES + 1))], lines)


def _clear(found: list[Any]) -> str:
    lines = []
    for gap, side, name, severity, key, cell in found:
        lines.append(
            [f"`{name}`, {side} pixels", str(severity), TITLES[key], f"{cell[0]:.2f}", f"{cell[2]:.2f}", f"{gap:.1f}"]
        )
    return grid(["", "severity", "statistic", "brinell", "published", "standard errors"], lines)


def render_seeds(found: dict[str, Any], interval: Any) -> dict[str, Any]:
    """Return what the page says about many draws of one corruption."""
    alexnet = ALEXNET[f"{found['operator']}:imagenet_c"]
    here, there = (np.array(found[side]) / (SEVERITIES * alexnet) for side in ("ours", "published"))
    return {
        "seeds": len(here),
        "seed_operator": found["operator"],
        "seed_network": found["network"],
        "seed_means": [100 * float(side.mean()) for side in (here, there)],
        "seed_ranges": [[100 * float(end) for end in (side.mean(1).min(), side.mean(1).max())] for side in (here, there)],
        "seed_interval": interval(here.mean(0) - there.mean(0)),
    }
