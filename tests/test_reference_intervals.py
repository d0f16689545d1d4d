"""Means of one number, or without a deviation, have no interval."""

from __future__ import annotations

import math

import pytest

from brinell.runs.statistics import mean


@pytest.mark.parametrize(("deviation", "count"), [(0.5, 1), (None, 5), (None, 1)])
def test_one_number_or_no_deviation_has_no_interval(deviation: float | None, count: int) -> None:
    found = mean(2.0, deviation, count)
    assert found.value == 2.0 and math.isnan(found.low) and math.isnan(found.high)
