"""Intervals against independent references, and findings as plain data."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from brinell.runs.plain import to_plain
from brinell.runs.statistics import Estimate, effective_mean, first_below, mean, proportion, ratio, sampled_ratio


@pytest.mark.parametrize(("successes", "total"), [(0, 10), (3, 10), (10, 10), (57, 300), (299, 300)])
def test_wilson_is_scipy_s(successes: int, total: int) -> None:
    theirs = stats.binomtest(successes, total).proportion_ci(method="wilson")
    ours = proportion(successes, total)
    assert (ours.low, ours.high) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_means_of_zeros_and_ones_have_wilson_s_interval() -> None:
    for right, count in ((0, 24), (1, 10), (7, 24), (299, 300)):
        values = np.arange(count) < right
        found = mean(float(values.mean()), float(values.std(ddof=1)), count, most=1)
        assert (found.low, found.high) == pytest.approx((proportion(right, count).low, proportion(right, count).high))


@pytest.mark.parametrize("most", [1, math.inf])
def test_intervals_of_many_values_are_student_s(most: float) -> None:
    values = np.random.default_rng(0).uniform(0.3, 0.5, 20_000)
    found = mean(float(values.mean()), float(values.std(ddof=1)), len(values), most=most)
    theirs = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((theirs.low, theirs.high), abs=1e-5)


def test_a_ratio_over_clusters_of_one_size_is_a_mean() -> None:
    """Up to the observations that are added, which matter less the more clusters there are."""
    for count, close in ((24, 0.05), (2400, 1e-3)):
        shares = np.random.default_rng(0).integers(0, 6, count) / 5
        a, b = 5 * shares, np.full(count, 5.0)
        found = ratio(a.sum(), b.sum(), (a * a).sum(), (a * b).sum(), (b * b).sum(), count)
        expected = mean(float(shares.mean()), float(shares.std(ddof=1)), count, most=1)
        assert found.value == pytest.approx(expected.value)
        assert found.high - found.low == pytest.approx(expected.high - expected.low, rel=2 * close)
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=close)


@pytest.mark.parametrize("count", [10, 24, 100])
@pytest.mark.parametrize(
    ("most", "draw"),
    [
        (1, lambda generator, size: generator.beta(0.1, 1.9, size)),  # near the floor, a few large
        (1, lambda generator, size: generator.beta(1.9, 0.1, size)),
        (1, lambda generator, size: generator.beta(1, 1, size)),
        (1, lambda generator, size: (generator.random(size) < 0.1) * generator.random(size)),
        (1, lambda generator, size: generator.binomial(3, 0.03, size) / 3),
        (math.inf, lambda generator, size: generator.exponential(1, size)),
        (math.inf, lambda generator, size: generator.lognormal(0, 0.7, size)),
    ],
)
def test_intervals_of_few_and_skewed_values_hold(
    count: int, most: float, draw: Callable[[np.random.Generator, Any], np.ndarray]
) -> None:
    generator = np.random.default_rng(count)
    truth = float(draw(generator, 2_000_000).mean())
    found = [
        mean(float(values.mean()), float(values.std(ddof=1)), count, most=most) for values in draw(generator, (1000, count))
    ]
    covered = sum(one.low <= truth <= one.high for one in found) / 1000
    assert covered > 0.9, f"the intervals cover the mean in {covered:.1%} of samples"


def test_intervals_cover_as_often_as_they_say() -> None:
    generator = np.random.default_rng(1)
    hits = 0
    for _ in range(2000):
        found = proportion(int(generator.binomial(40, 0.8)), 40)
        hits += found.low <= 0.8 <= found.high
    assert hits / 2000 == pytest.approx(0.95, abs=0.02)


def test_intervals_stay_in_range_and_need_two_values() -> None:
    assert mean(0.98, 0.3, 10, most=1).high <= 1
    assert mean(0.1, 3.0, 10).low > 0
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


# ---- samples ----


def test_effective_means_are_means_where_all_weights_are_equal() -> None:
    values = np.random.default_rng(0).random(40)
    expected = mean(float(values.mean()), float(values.std(ddof=1)), 40, most=1)
    found = effective_mean(float(values.mean()), float(values.var(ddof=1)) / 40, 40, most=1)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_a_ratio_over_few_clusters_is_wider() -> None:
    sums = (3.0, 12.0, 3.0, 12.0, 48.0)  # three clusters of four, among many without any
    few, many = sampled_ratio(*sums, 100), ratio(*sums, 100)
    assert few.value == many.value and few.high - few.low > many.high - many.low
