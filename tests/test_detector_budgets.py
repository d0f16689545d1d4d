"""Detectors under a budget: sampled within images, and grown to the rows of a full run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import brinell
from conftest import PLAIN
from test_detectors import Spots, spots, wrapped

__all__ = ["spots"]  # a fixture

LENSES: list[dict[str, Any]] = [
    {"name": "profile", "operators": ["fade_black"], "levels": 10},
    {"name": "highlights", "operators": ["highlight"], "cells": 3},
    {"name": "fragility", "sizes": [0.7]},
]
ORDERED = "select * from rows order by image, level, operator, {}"


@pytest.mark.slow
@pytest.mark.parametrize("lens", LENSES, ids=lambda lens: lens["name"])
def test_a_detector_s_sample_grows_to_the_full_run(lens: dict[str, Any], spots: Path, tmp_path: Path) -> None:
    data = {"source": str(spots), "preferred": "spot"}

    def measure(out: str, budget: float | None) -> brinell.Run:
        given = {"lens": lens, "budget": budget, "execution": PLAIN, "quiet": True}
        return brinell.run(wrapped(Spots()), data, out=tmp_path / out, **given)

    sample = measure("grown", 0.3)
    kept = sample.rows("select count(distinct image), max(inclusion), min(inclusion) from rows").fetchall()
    assert sample.sampled and kept[0][0] == 5 and kept[0][2] < 0.5
    ordered = ORDERED.format("kind, judged_by" if lens["name"] == "fragility" else "amount")
    grown, full = measure("grown", None), measure("full", None)
    assert grown.rows(ordered).fetchall() == full.rows(ordered).fetchall()
