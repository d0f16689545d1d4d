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
from brinell.runs.statistics import Estimate, effective_mean, first_below, mean, proportion, ratio


@pytest.mark.parametrize(("successes", "total"), [(0, 10), (3, 10), (10, 10), (57, 300), (299, 300)])
def test_proportions_reach_to_scipy_s_wilson_and_exact_bounds(successes: int, total: int) -> None:
    test, ours = stats.binomtest(successes, total), proportion(successes, total)
    wilson, exact = test.proportion_ci(method="wilson"), test.proportion_ci(0.92, method="exact")  # 4 % on each side
    expected = min(wilson.low, exact.low), max(wilson.high, exact.high)
    assert (ours.low, ours.high) == pytest.approx(expected, abs=1e-9)


def test_plain_wilson_is_enough_for_many_of_both_kinds() -> None:
    for successes, total in ((50, 100), (26, 52), (26, 10_000)):
        wilson, ours = stats.binomtest(successes, total).proportion_ci(method="wilson"), proportion(successes, total)
        assert (ours.low, ours.high) == pytest.approx((wilson.low, wilson.high), abs=1e-12)


@pytest.mark.parametrize(("count", "least"), [(10, 0.925), (24, 0.929), (100, 0.93), (300, 0.93)])
def test_intervals_of_proportions_hold_for_every_proportion(count: int, least: float) -> None:
    """Exactly, by adding up the probabilities of all outcomes."""
    truth = np.linspace(0.0005, 0.9995, 1999)
    found = [proportion(right, count) for right in range(count + 1)]
    low, high = (np.array([getattr(one, bound) for one in found])[:, None] for bound in ("low", "high"))
    chance = stats.binom.pmf(np.arange(count + 1)[:, None], count, truth)
    assert (chance * ((low <= truth) & (truth <= high))).sum(0).min() > least


def test_means_of_zeros_and_ones_have_a_proportion_s_interval() -> None:
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
    for count in (24, 2400):
        shares = np.random.default_rng(0).integers(0, 6, count) / 5
        a, b = 5 * shares, np.full(count, 5.0)
        found = ratio(a.sum(), b.sum(), (a * a).sum(), (a * b).sum(), (b * b).sum())
        expected = mean(float(shares.mean()), float(shares.std(ddof=1)), count, most=1)
        assert found.value == pytest.approx(expected.value)
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize("count", [10, 24, 100])
@pytest.mark.parametrize(
    ("most", "draw"),
    [
        (1, lambda generator, size: generator.beta(0.1, 1.9, size)),  # near the floor, a few large
        (1, lambda generator, size: generator.beta(1.9, 0.1, size)),
        (1, lambda generator, size: generator.beta(1, 1, size)),
        (1, lambda generator, size: (generator.random(size) < 0.1) * generator.random(size)),
        (1, lambda generator, size: generator.binomial(3, 0.03, size) / 3),
        (
            1,
            lambda generator, size: np.where(
                generator.random(size) < 0.011, 0, generator.normal(0.9, 0.03, size).clip(0, 1)
            ),
        ),
        (1, lambda generator, size: 1 - (generator.random(size) < 0.02) * generator.choice([1, 1, 0.3], size)),
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

    from brinell.runs.quantiles import beta_quantile, normal_quantile, student_chance, student_quantile

    for probability in (0.6, 0.9, 0.975, 0.995):
        assert normal_quantile(probability) == pytest.approx(float(special.ndtri(probability)), rel=1e-13)
        for freedom in [*range(1, 60), 99, 200, 500, 999, 1000, 1001, 5000, 10**6]:
            exact = float(special.stdtrit(freedom, probability))
            assert student_quantile(freedom, probability) == pytest.approx(exact, rel=1e-9), (freedom, probability)
    for freedom in (1, 2, 9, 99, 4_999, 49_999, 10**6):
        for t in (0.0, 1e-9, 1e-3, -0.7, 2.2, 9.0):
            exact = 2 * float(special.stdtr(freedom, -abs(t)))
            assert student_chance(freedom, t) == pytest.approx(exact, rel=1e-3 if freedom > 10**5 else 1e-8), (freedom, t)
    for a in (0.01, 0.3, 1.0, 2.5, 25.0):
        for b in (1.0, 1.3, 10.0, 999.5, 1e6):
            assert beta_quantile(a, b, 0.04) == pytest.approx(float(special.betaincinv(a, b, 0.04)), rel=1e-7), (a, b)
    assert beta_quantile(0.0, 5.0, 0.04) == beta_quantile(1e-6, 5.0, 0.04) == 0


# ---- samples ----


def test_effective_means_are_means_where_all_weights_are_equal() -> None:
    values = np.random.default_rng(0).random(40)
    expected = mean(float(values.mean()), float(values.std(ddof=1)), 40, most=1)
    found = effective_mean(float(values.mean()), float(values.var(ddof=1)) / 40, 40, most=1)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_a_ratio_is_over_as_many_clusters_as_have_most_of_it() -> None:
    """A hundred clusters, three of which have four each: as if there were three."""
    a, b = np.zeros(100), np.zeros(100)
    a[:3], b[:3] = [3, 0, 1], 4
    found = ratio(a.sum(), b.sum(), (a * a).sum(), (a * b).sum(), (b * b).sum())
    three = mean(float((a / 4)[:3].mean()), float((a / 4)[:3].std(ddof=1)), 3, most=1)
    assert (found.value, found.low, found.high) == pytest.approx((three.value, three.low, three.high))


def test_intervals_of_ratios_hold_where_few_clusters_have_any() -> None:
    generator, truth = np.random.default_rng(0), 0.3
    covered = []
    for _ in range(500):
        b = np.where(generator.random(100) < 0.05, generator.integers(1, 60, 100), 0)
        a = generator.binomial(b, generator.beta(2 * truth, 2 * (1 - truth), 100))
        found = ratio(*map(float, (a.sum(), b.sum(), (a * a).sum(), (a * b).sum(), (b * b).sum())))
        covered += [found.low <= truth <= found.high] * (not math.isnan(found.low))
    assert np.mean(covered) > 0.93
