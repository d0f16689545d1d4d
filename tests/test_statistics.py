"""Intervals against independent references, and findings as plain data."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

from brinell.runs.plain import to_plain
from brinell.runs.statistics import Estimate, first_below, mean, proportion


@pytest.mark.parametrize(("successes", "total"), [(0, 10), (3, 10), (10, 10), (57, 300), (299, 300)])
def test_wilson_is_scipy_s(successes: int, total: int) -> None:
    theirs = stats.binomtest(successes, total).proportion_ci(method="wilson")
    ours = proportion(successes, total)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_student_is_scipy_s() -> None:
    values = np.random.default_rng(0).normal(5, 2, 40)
    ours = mean(float(values.mean()), float(values.std(ddof=1)), len(values))
    theirs = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high))


def test_intervals_cover_as_often_as_they_say() -> None:
    generator = np.random.default_rng(1)
    hits = 0
    for _ in range(2000):
        found = proportion(int(generator.binomial(40, 0.8)), 40)
        hits += found.low <= 0.8 <= found.high
    assert hits / 2000 == pytest.approx(0.95, abs=0.02)


def test_intervals_stay_in_range_and_need_two_values() -> None:
    assert mean(0.98, 0.3, 10, most=1).high == 1
    assert mean(0.1, 3.0, 10).low == 0
    assert math.isnan(mean(0.5, None, 1).low)
    assert math.isnan(proportion(0, 0).value)


def test_estimates_print_with_their_interval() -> None:
    assert f"{Estimate(0.5, 0.4, 0.6):.1f}" == "0.5 [0.4, 0.6]"


def test_first_below() -> None:
    assert first_below([1.0, 0.6, 0.5, 0.4], 0.5) == 3
    assert first_below([1.0, 0.6], 0.5) is None
    assert first_below([0.3], 0.5) == 0


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_images_that_all_agree_are_not_certain(value: float) -> None:
    assert mean(value, 0.0, 24, most=1) == proportion(round(24 * value), 24)
    assert mean(value, 0.0, 24, most=1).high - mean(value, 0.0, 24, most=1).low > 0.1


def test_plain_data_is_valid_json() -> None:
    plain = to_plain({0.5: (Estimate(1.0, math.nan, math.inf), [None, "word", True])})
    assert plain == {"0.5": [{"value": 1.0, "low": None, "high": None}, [None, "word", True]]}
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain


def test_quantiles_are_scipy_s() -> None:
    from scipy import special

    from brinell.runs.quantiles import normal_quantile, student_quantile

    for probability in (0.6, 0.9, 0.975, 0.995):
        assert normal_quantile(probability) == pytest.approx(float(special.ndtri(probability)), rel=1e-13)
        for freedom in [*range(1, 60), 99, 200, 500, 999, 1000, 1001, 5000, 10**6]:
            exact = float(special.stdtrit(freedom, probability))
            assert student_quantile(freedom, probability) == pytest.approx(exact, rel=1e-9), (freedom, probability)
