"""What a run found, lens by lens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import duckdb

from brinell.results.knobs import Knobs, knobs
from brinell.results.profiles import THRESHOLDS, Profiles, profiles

Findings = Profiles | Knobs


def findings(
    connection: duckdb.DuckDBPyConnection, manifest: Mapping[str, Any], thresholds: tuple[float, ...] = THRESHOLDS
) -> dict[str, Findings]:
    """By the name of each of a run's lenses, in their order."""
    found: dict[str, Findings] = {}
    for lens in manifest["identity"]["config"]["lenses"]:
        if lens["name"] == "profile":
            found["profile"] = profiles(connection, thresholds)
        elif lens["name"] == "knob":
            found["knob"] = knobs(connection, lens["distance"])
    return found
