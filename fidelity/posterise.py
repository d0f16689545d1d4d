"""Posterise: whether levels start from the clean image or the last level, and which rule gives the published curves."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from fidelity.compare import Array, area, distance, kept
from fidelity.experiments import FEW, KERAS, NETWORKS
from fidelity.measure import LITE0, Measured, measure, published, published_networks
from fidelity.words import grid

CLEAN, STACKED = "posterise:published", "posterise:cumulative"
LITE, LITE_KERAS = "EfficientNet-Lite0", "EfficientNet-Lite0, Keras' normalisation"
TWINS = 26, 29  # the published levels of equal accuracy in all three networks
APART = 27, 28, 30  # their neighbours, whose accuracy differs
SHOWN = 15, 23, 30


def measure_posterise() -> Measured:
    """Run both variants on every network, and on Lite0 with Keras' normalisation."""
    networks = {LITE: f"{LITE0}&", LITE_KERAS: f"{LITE0}&std={KERAS}&", **NETWORKS}
    sources = [f"{source}name={name.replace(',', '')}" for name, source in networks.items()]
    return measure("posterise", [CLEAN, STACKED], models=sources, limit=FEW)


def posterise_facts(measured: Measured) -> dict[str, Any]:
    """Return the page's figures: a table, what networks keep from either start, their distance to B0, rules that fit."""
    clean, stacked = (_curves(measured, way) for way in (CLEAN, STACKED))
    theirs = {network: kept(published(network)["posterise"]) for network in published_networks()}
    b0, middle = theirs["EfficientNetB0"], SHOWN[1]
    here, there = ([curve[middle] for curve in curves.values()] for curves in (clean, theirs))
    whole, printed = (sorted(float(area(curve)) for curve in curves.values()) for curves in (stacked, theirs))
    assert max(there) < min(here), "the page says that no network drops as low"
    assert whole[0] <= printed[0] <= printed[-1] <= whole[-1], "the page says that the published networks lie within"
    nearest = min(stacked, key=lambda name: distance(stacked[name], b0))
    found = [_same_images(tables) for tables in rules()]
    return {
        "table": _table({CLEAN: clean, STACKED: stacked}, theirs),
        "middle": middle,
        "here": (min(here), max(here)),
        "there": sorted(there),
        "stacked": (whole[0], whole[-1]),
        "published": printed,
        "b0": area(b0),
        "lite": area(stacked[LITE]),
        "lite_distance": distance(stacked[LITE], b0),
        "clean_distance": distance(clean[LITE], b0),
        "nearest": nearest,
        "nearest_kept": area(stacked[nearest]),
        "nearest_distance": distance(stacked[nearest], b0),
        "twins": max(abs(float(curve[TWINS[0]] - curve[TWINS[1]])) for curve in theirs.values()),
        "rules": (sum(found), len(found)),
    }


def _curves(measured: Measured, way: str) -> dict[str, Array]:
    names = [LITE, LITE_KERAS, *NETWORKS]
    return {name: kept(measured.of(way, name.replace(",", "")).mean(0)) for name in names}


def _table(curves: dict[str, dict[str, Array]], theirs: dict[str, Array]) -> str:
    starts = {CLEAN: "from the clean image", STACKED: "on top of the last level"}
    rows = [(name, starts[way], curve) for way in starts for name, curve in curves[way].items()]
    rows += [(f"*{network}*", "*published*", curve) for network, curve in theirs.items()]
    return grid(
        ["", "each level", "kept", *(f"level {level}" for level in SHOWN), "distance from B0"],
        [
            [
                name,
                way,
                f"{area(curve):.3f}",
                *(f"{curve[level]:.2f}" for level in SHOWN),
                f"{distance(curve, theirs['EfficientNetB0']):.3f}",
            ]
            for name, way, curve in rows
        ],
    )


def rules() -> Iterator[Array]:
    """Yield candidate rules, each as the table of the 256 grey values at levels 0..30: (31, 256).

    They differ in the number of bins at level 1 and the range that is divided; in the value of a bin (spread from black
    to white, lower border, centre, upper border); in whether values are truncated, rounded or fractional; in the bin that
    a border belongs to; and in what the next level starts from.
    """
    values = [
        lambda index, count: index * 255 / (count - 1),
        lambda index, count: index * 255 / count,
        lambda index, count: (index + 0.5) * 255 / count,
        lambda index, count: (index + 1) * 255 / count,
    ]
    for first, whole, value, to_grey, above, cumulative in product(
        (31, 32, 33), (255, 256), values, (np.floor, np.rint, np.asarray), (True, False), (True, False)
    ):
        tables = [np.arange(256.0)]
        for count in range(first, first - 30, -1):
            position = (tables[-1] if cumulative else tables[0]) * count / whole
            index = np.floor(position) if above else np.ceil(position) - 1
            tables.append(to_grey(value(index.clip(0, count - 1), count)))
        yield np.stack(tables)


def _same_images(tables: Array) -> bool:
    """Whether the levels of equal accuracy agree to a grey level on average, and their neighbours don't."""
    first, second = TWINS
    apart = [np.abs(tables[second] - tables[level]).mean() for level in (first, *APART)]
    return bool(apart[0] <= 1 < min(apart[1:]))
