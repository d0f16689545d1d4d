"""Tables of coverage and width under budgets, for docs/statistics.md."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fidelity.real_samples import COUNTS, PASSES, RESULTS, SIMULATIONS, WIDTH_IMAGES
from fidelity.words import grid

SAMPLES = Path(__file__).parent / "results" / "samples.json"
Row = Mapping[str, Any]


def sample_tables(counts: Sequence[int]) -> dict[str, Any]:
    """Return what the page says about budgets, from stored results."""
    simulated, real, passes = (
        json.loads(file.read_text(encoding="utf-8")) if file.exists() else [] for file in (SAMPLES, RESULTS, PASSES)
    )
    tables = [simulated, [row for row in real if row["images"] in COUNTS]]
    simulated, sampled = ([row for row in table if not math.isnan(row["covered"])] for table in tables)
    return {
        "sampled": _coverage(simulated, counts),
        "real": _coverage(sampled, COUNTS),
        "sampled_lowest": _lowest(simulated),
        "real_lowest": _lowest(sampled),
        "cells": len(simulated) + len(sampled),
        "short": [
            _describe(row) for row in (*simulated, *sampled) if row["covered"] < (0.9 if row["images"] == 10 else 0.93)
        ],
        "real_simulations": SIMULATIONS,
        "widths": _widths([row for row in real if row["images"] == WIDTH_IMAGES], {tuple(key): n for *key, n in passes}),
        "width_images": WIDTH_IMAGES,
    }


def _lowest(found: Iterable[Row]) -> dict[int, float]:
    """Return the lowest coverage by number of images."""
    lowest: dict[int, float] = {}
    for row in sorted(found, key=lambda row: int(row["images"])):
        lowest[row["images"]] = min(row["covered"], lowest.get(row["images"], 1.0))
    return lowest


def _describe(row: Row) -> str:
    """Return a cell of the tables in words."""
    budget = "full" if row["share"] == 1 else f"budget {row['share']:g}"
    return f"{row['figure']}, {_place(row)}, {budget}, {row['images']:,} images: {row['covered']:.1%}"


def _place(row: Row) -> str:
    return row["where"] if row["source"] == "simulated" else f"{row['source']}: {row['where']}"


def _coverage(found: Iterable[Row], counts: Sequence[int]) -> str:
    """Return a table by figure, place and budget."""
    table: dict[tuple[str, str, float], dict[int, Row]] = {}
    for row in found:
        table.setdefault((row["figure"], _place(row), row["share"]), {})[row["images"]] = row
    rows = [
        [figure, place, _budget(share), *(_cell(by.get(images)) for images in counts)]
        for (figure, place, share), by in sorted(table.items(), key=lambda pair: (*pair[0][:2], -pair[0][2]))
    ]
    return grid(["figure", "where", "budget", *(f"{images:,} images" for images in counts)], rows)


def _cell(row: Row | None) -> str:
    """Return coverage in percent and width; a dash where it was not measured."""
    return "–" if row is None or math.isnan(row["covered"]) else f"{100 * row['covered']:.1f} ({row['width']:.3f})"


def _widths(found: Iterable[Row], passes: Mapping[tuple[str, ...], int]) -> str:
    """Return a table of widths by run and figure."""
    table: dict[tuple[str, str], dict[float, Row]] = {}
    for row in found:
        every = WIDTH_IMAGES * passes[row["of"], row["source"], row["where"]]
        place = f"{row['source']}: {row['where']}"
        table.setdefault((place, row["figure"]), {})[row["share"]] = {**row, "passes": round(every * row["share"])}
    rows = []
    for (place, figure), by in sorted(table.items()):
        if 1.0 not in by:
            continue
        cells = [f"{by[share]['width']:.3f} ({by[share]['passes']:,})" for share in sorted(by, reverse=True)]
        worth = [_worth(by[1.0], by[share]) for share in sorted(by, reverse=True) if share < 1]
        rows.append([place, figure, *cells, *worth])
    return grid(["run", "figure", "full (passes)", "0.3", "0.1", "worth at 0.3", "worth at 0.1"], rows)


def _worth(full: Row, sampled: Row) -> str:
    """Return how many times more passes a full run on fewer images takes for the same width."""
    return f"{(full['width'] / sampled['width']) ** 2 / sampled['share']:.1f} ×"


def _budget(share: float) -> str:
    return "full" if share == 1 else f"{share:g}"
