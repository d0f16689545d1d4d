"""What a run found, lens by lens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb

from brinell.errors import RunError
from brinell.lenses.fragility.findings import Fragility, fragility
from brinell.lenses.geometry.findings import Motions, motions
from brinell.lenses.highlights.findings import AT_LEAST, Highlights, highlights
from brinell.lenses.knob.findings import Knobs, knobs
from brinell.lenses.photographs.findings import AT_LEAST as FEWER
from brinell.lenses.photographs.findings import Photographs, photographs
from brinell.lenses.profile.findings import THRESHOLDS, Profiles, profiles
from brinell.saliency.findings import Attention, attention

Findings = Profiles | Knobs | Fragility | Highlights | Photographs | Motions | Attention


def findings(
    connection: duckdb.DuckDBPyConnection,
    manifest: Mapping[str, Any],
    thresholds: tuple[float, ...] = THRESHOLDS,
    at_least: tuple[int, ...] | None = None,
) -> dict[str, Findings]:
    """By the name of each of a run's lenses that has rows, in their order, and of attention where that was looked at."""
    measured = {lens for (lens,) in connection.execute("select distinct lens from rows").fetchall()}
    if not measured:
        raise RunError("the run has no rows yet; finish it with the command that began it")
    found: dict[str, Findings] = {}
    for lens in manifest["identity"]["config"]["lenses"]:
        if lens["name"] == "profile" and "profile" in measured:
            found["profile"] = profiles(connection, thresholds)
        elif lens["name"] == "knob" and "knob" in measured:
            found["knob"] = knobs(connection, lens["distance"], search=lens["search"], resample=lens["resample"])
        elif lens["name"] == "fragility" and "fragility" in measured:
            found["fragility"] = fragility(connection, lens["stride"], lens["neighbours"])
        elif lens["name"] == "highlights" and "highlights" in measured:
            found["highlights"] = highlights(connection, lens, at_least or AT_LEAST)
        elif lens["name"] == "photographs" and "photographs" in measured:
            found["photographs"] = photographs(connection, at_least or FEWER)
        elif lens["name"] == "geometry" and "geometry" in measured:
            found["geometry"] = motions(
                connection, threshold=lens["threshold"], against=lens["against"], most_steps=lens["most_steps"]
            )
    if "attention" in manifest:
        found["attention"] = attention(connection, manifest["attention"])
    return found
