"""What a run found, lens by lens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb

from brinell.errors import RunError
from brinell.results.knobs import Knobs, knobs
from brinell.results.motions import Motions, motions
from brinell.results.profiles import THRESHOLDS, Profiles, profiles

Findings = Profiles | Knobs | Motions


def findings(
    connection: duckdb.DuckDBPyConnection, manifest: Mapping[str, Any], thresholds: tuple[float, ...] = THRESHOLDS
) -> dict[str, Findings]:
    """By the name of each of a run's lenses that has rows, in their order."""
    measured = {lens for (lens,) in connection.execute("select distinct lens from rows").fetchall()}
    if not measured:
        raise RunError("the run has no rows yet; finish it with the command that began it")
    found: dict[str, Findings] = {}
    for lens in manifest["identity"]["config"]["lenses"]:
        if lens["name"] == "profile" and "profile" in measured:
            found["profile"] = profiles(connection, thresholds)
        elif lens["name"] == "knob" and "knob" in measured:
            found["knob"] = knobs(connection, lens["distance"], search=lens["search"], resample=lens["resample"])
        elif lens["name"] == "geometry" and "geometry" in measured:
            found["geometry"] = motions(connection, threshold=lens["threshold"], against=lens["against"])
    return found
