"""Intervals of very few numbers: none of one, and of two or three as many degrees of freedom as they have."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from brinell.runs.statistics import mean


@pytest.mark.parametrize(("deviation", "count"), [(0.5, 1), (None, 5), (None, 1)])
def test_one_number_or_no_deviation_has_no_interval(deviation: float | None, count: int) -> None:
    found = mean(2.0, deviation, count)
    assert found.value == 2.0 and math.isnan(found.low) and math.isnan(found.high)


def test_two_numbers_have_an_interval() -> None:
    found = mean(2.0, 0.5, 2)
    assert found.low < 2.0 < found.high


@pytest.mark.parametrize("count", [2, 3, 8])
def test_few_shares_have_the_degrees_of_freedom_of_their_number(count: int) -> None:
    """The lower bound, step by step: half an image at 0, dispersion, Student's quantile, Wilson's bound, the exact one."""
    share, deviation = 0.5, 0.2
    unseen = 0.5 * share**2
    dispersion = ((count - 1) * deviation**2 + unseen) / ((count - 1) * share * (1 - share) + unseen)
    normal, student = stats.norm.ppf(0.975), stats.t.ppf(0.975, count - 1)
    z, total = normal + (student - normal) * (1 - dispersion), count / dispersion
    half = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    wilson = (share + z * z / (2 * total)) / (1 + z * z / total) - half
    exact = stats.beta.ppf(0.04, share * total, (1 - share) * total + 1)
    assert mean(share, deviation, count, most=1).low == pytest.approx(min(wilson, exact), abs=1e-9)
