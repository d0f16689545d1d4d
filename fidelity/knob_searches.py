"""Searches of the knob lens compared image by image: exact and bracketing, whole grey levels and floats."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import brinell
from brinell.lenses.knob import search
from brinell.perturb.property import find_property, property_names
from fidelity.knob_tables import NETWORKS, VARIANT
from fidelity.words import grid, title


@dataclass(frozen=True)
class Searched:
    """What a search found for one image of one network: its smallest break, None if it survives; the level of the first
    break in each direction, None if there is none; and its queries.
    """

    distance: float | None
    levels: dict[str, int | None]
    queries: int


Found = dict[tuple[str, str, str], Searched]  # by network, property and image

_SEARCHED = """
    select model, operator, image, min(mse) filter (smallest), map(list(direction), list(level)), sum(queries)::int
    from rows where status in ('broken', 'survived') group by all
"""


def read_searches(run: brinell.Run) -> Found:
    """Return what a run's search found."""
    return {
        (model, operator, image): Searched(distance, levels, queries)
        for model, operator, image, distance, levels, queries in run.rows(_SEARCHED).fetchall()
    }


@contextmanager
def no_probes() -> Iterator[None]:
    """Leave bracketing without its probes, as it was before."""
    probes, search.PROBES = search.PROBES, (0, 0)
    try:
        yield
    finally:
        search.PROBES = probes


def of_property(found: Found, operator: str) -> Found:
    """Return what was found under one property."""
    return {key: one for key, one in found.items() if key[1] == operator}


def ratio(first: Found, second: Found) -> float:
    """Return R of the first search divided by R of the second, over the images that break in both."""
    pairs = [(first[key].distance, one.distance) for key, one in second.items()]
    both = [(one, other) for one, other in pairs if one is not None and other is not None]
    return fmean(one for one, _ in both) / fmean(other for _, other in both) if both else float("nan")


def false_survivors(exact: Found, bracket: Found) -> tuple[int, int]:
    """Return how many images that the exact search breaks survive bracketing, and how many it breaks."""
    broken = [key for key, one in exact.items() if one.distance is not None]
    return sum(bracket[key].distance is None for key in broken), len(broken)


def compare_searches(exact: Found, bracket: Found, blind: Found) -> dict[str, Any]:
    """Return the table of both searches, with and without probes, and its totals."""
    lines, averages = [], []
    for operator in _operators():
        own = [of_property(found, operator) for found in (exact, bracket, blind)]
        queries = [fmean(one.queries for one in found.values()) for found in own]
        missed, broken = false_survivors(own[0], own[1])
        missed_before, _ = false_survivors(own[0], own[2])
        averages.append(queries)
        lines.append(
            [
                title(operator),
                f"{queries[0]:.0f}",
                f"{queries[2]:.0f}",
                f"{queries[1]:.0f}",
                f"{ratio(own[2], own[0]):.2f}",
                f"{ratio(own[1], own[0]):.2f}",
                f"{missed_before} of {broken}",
                f"{missed} of {broken}",
            ]
        )
    header = ["property", "queries, exact", "queries, no probes", "queries, bracket"]
    header += ["R / exact, no probes", "R / exact, bracket", "false survivors, no probes", "false survivors, bracket"]
    (missed, broken), (missed_before, _) = false_survivors(exact, bracket), false_survivors(exact, blind)
    means = [fmean(column) for column in zip(*averages, strict=True)]
    return {
        "table": grid(header, lines),
        "queries": {"exact": means[0], "bracket": means[1], "no_probes": means[2]},
        "least": min(queries[1] for queries in averages),
        "most": max(queries[1] for queries in averages),
        "missed": missed,
        "missed_before": missed_before,
        "broken": broken,
    }


def compare_rounding(whole: Found, floats: Found) -> dict[str, Any]:
    """Return the table of R with and without rounding, and the properties that rounding changes the most.

    Floats may have been searched for some of the properties and images alone.
    """
    lines, ratios, moved_shares = [], {}, []
    for operator in [name for name in _operators() if of_property(floats, name)]:
        rounded, exact = of_property(whole, operator), of_property(floats, operator)
        both = [key for key, one in exact.items() if one.distance is not None and rounded[key].distance is not None]
        moved, count = count_moved(rounded, exact)
        ratios[title(operator)] = ratio(rounded, exact)
        moved_shares.append((moved, count))
        means = [fmean(found[key].distance or 0.0 for key in both) for found in (rounded, exact)]
        lines.append(
            [
                title(operator),
                f"{means[0]:.2e}",
                f"{means[1]:.2e}",
                f"{ratios[title(operator)]:.2f}",
                f"{moved} of {count}",
                str(len(both)),
            ]
        )
    header = ["property", "R, whole grey levels", "R, floats", "whole / floats", "first breaks that move", "images"]
    moved, count = (sum(column) for column in zip(*moved_shares, strict=True))
    largest = sorted(ratios.items(), key=lambda one: -abs(one[1] - 1))[:4]
    return {"table": grid(header, lines), "moved": moved, "count": count, "largest": largest}


def count_moved(first: Found, second: Found) -> tuple[int, int]:
    """Return in how many directions the first break is another point of the grid, and in how many either search has one."""
    levels = [
        (first[key].levels[direction], level) for key, one in second.items() for direction, level in one.levels.items()
    ]
    broken = [pair for pair in levels if pair != (None, None)]
    return sum(one != other for one, other in broken), len(broken)


def _operators() -> Sequence[str]:
    return [find_property(name, VARIANT).id for name in property_names()]


def count_images(found: Found) -> dict[str, int]:
    """Return how many images of each network were searched."""
    return {network: len({image for model, _, image in found if model == network}) for network in NETWORKS}
