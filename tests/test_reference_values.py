"""Statistics by their values: against SciPy where it has them, and pinned where it doesn't."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import duckdb
import numpy as np
import pytest
from scipy import stats

from brinell.comparison.paired import Effects, few_effects, holm, mcnemar, mean_effects, ratio_effects, share_effects
from brinell.comparison.resampling import RESAMPLES, draw_below, resampled_sums
from brinell.runs import quantiles
from brinell.runs.ranking import Extremes, find_extremes, is_clear
from brinell.runs.statistics import (
    THRESHOLDS,
    Estimate,
    effective_mean,
    first_below,
    mean,
    overlap,
    proportion,
    ratio,
)

NAN = math.nan


def close(found: Estimate, value: float, low: float, high: float) -> None:
    assert (found.value, found.low, found.high) == pytest.approx((value, low, high), abs=2e-9, nan_ok=True)


# ---- intervals ----


@pytest.mark.parametrize(("successes", "total"), [(0, 1), (1, 1), (3, 7), (50, 50), (199, 200)])
def test_proportions_have_wilsons_interval_or_the_exact_bound(successes: int, total: int) -> None:
    test = stats.binomtest(successes, total)
    wilson, exact = test.proportion_ci(method="wilson"), test.proportion_ci(0.92, method="exact")
    low, high = min(wilson.low, exact.low), max(wilson.high, exact.high)
    close(proportion(successes, total), successes / total, low, high)
    both = successes in (0, total)
    share = mean(
        successes / total, 0.0 if both else math.sqrt(successes * (total - successes) / total / (total - 1)), total, 1
    )
    if total > 1:  # shares of 0 or 1 are a proportion
        close(share, successes / total, low, high)


def test_no_observation_has_no_interval() -> None:
    close(proportion(0, 0), NAN, NAN, NAN)
    close(mean(0.5, None, 1, most=1), 0.5, NAN, NAN)
    close(mean(1.0, None, 1), 1.0, NAN, NAN)
    close(mean(1.0, 0.5, 1, most=1), 1.0, 0.04, 1.0)
    close(mean(0.0, None, 1, most=1), 0.0, 0.0, 0.96)
    close(ratio(0, 0, 0, 0, 0), NAN, NAN, NAN)
    close(ratio(1, 2, 1, 2, 4), 0.5, NAN, NAN)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((0.8, 0.3, 7, 1), (0.8, 0.472150978, 0.957965108)),
        ((0.97, 0.05, 12, 1), (0.97, 0.773488556, 0.990197917)),
        ((0.5, 0.5, 40, 1), (0.5, 0.351995269, 0.648004731)),
        ((0.2, 0.0, 5, 1), (0.2, 0.128348343, 0.522960703)),
        ((2.5, 1.5, 6), (2.5, 1.438709891, 6.428767291)),
        ((0.0, 0.0, 4), (0.0, 0.0, 0.0)),
        ((-1.0, 0.5, 9), (-1.0, -1.384334023, -0.615665977)),
        ((9.0, 5.0, 3, 10), (9.0, 2.824914062, 10.0)),
    ],
)
def test_means(given: tuple[Any, ...], expected: tuple[float, float, float]) -> None:
    close(mean(*given), *expected)


def test_an_interval_that_can_t_be_bounded_stays_a_number() -> None:
    assert mean(1e-10, 1.0, 4).high == pytest.approx(1e-10 * math.exp(700))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ((0.7, 0.01, 5.5, 1), (0.7, 0.375988595, 0.886434133)),
        ((0.7, 0.01, 0.4, 1), (0.7, 0.007532973, 0.999988911)),
        ((3.0, 0.2, 5.5), (3.0, 2.045359726, 5.460807259)),
        ((3.0, 0.2, 2.5), (3.0, 0.519786657, 46.517183075)),
        ((3.0, 0.2, 0.5), (3.0, 0.519786657, 46.517183075)),
    ],
)
def test_weighted_means(given: tuple[Any, ...], expected: tuple[float, float, float]) -> None:
    close(effective_mean(*given), *expected)


def test_ratios_over_clusters() -> None:
    close(ratio(12, 20, 40, 66, 120), 0.6, 0.154111623, 0.916333658)  # as if 3 clusters of equal size
    close(ratio(12, 20, 40, 66, 100), 0.6, 0.299184197, 0.795247441)  # 4
    close(ratio(0, 5, 0, 0, 7), 0.0, 0.0, 0.658004811)
    close(ratio(3, 10, 5, 14, 60), 0.3, NAN, NAN)


def test_intervals_that_touch_overlap() -> None:
    one = Estimate(0.5, 0.4, 0.6)
    assert overlap(one, Estimate(0.7, 0.6, 0.8)) and overlap(Estimate(0.7, 0.6, 0.8), one)
    assert not overlap(one, Estimate(0.7, 0.61, 0.8)) and not overlap(Estimate(0.7, 0.61, 0.8), one)
    assert overlap(one, Estimate(0.9, NAN, NAN))
    assert (first_below([0.9, 0.5, 0.4], 0.5), first_below([0.5], 0.5)) == (2, None)
    assert THRESHOLDS == (0.9, 0.5, 0.1)


# ---- quantiles ----


def test_quantiles_of_students_distribution() -> None:
    for freedom in (1, 2, 3, 4, 7, 30, 999, 1000, 1001, 10**6):
        for probability in (0.6, 0.975, 0.9995):
            expected = stats.t.ppf(probability, freedom)
            assert quantiles.student_quantile(freedom, probability) == pytest.approx(expected, rel=2e-11)


def test_the_series_has_all_its_terms() -> None:
    """Abramowitz and Stegun 26.7.5; with few degrees of freedom every term shows."""
    found = [quantiles._series(*given) for given in ((2, 1.96), (10, 1.3), (5, 2.6))]
    assert found == pytest.approx([4.270741845362, 1.393712204213, 4.100089397986], abs=1e-12)
    densities = [quantiles._density(3, 0.7), quantiles._density(10, 2.0)]
    assert densities == pytest.approx([stats.t.pdf(0.7, 3), stats.t.pdf(2.0, 10)], rel=1e-12)


# ---- ranking ----


def test_a_difference_is_clear_beyond_its_error() -> None:
    """The error of 10 differences with deviation 0.2, one of which may be 0.5 either way, is √0.0086."""
    limit = stats.t.ppf(0.975, 9) * math.sqrt(0.0086)
    assert is_clear(10, limit * 1.0001, 0.2, 0.5) and is_clear(10, -limit * 1.0001, 0.2, 0.5)
    assert not is_clear(10, limit * 0.9999, 0.2, 0.5)
    assert not is_clear(5, 0.0, 0.0, 0.0)


def ranked(rows: list[tuple[str, str, str, float]]) -> dict[str, Extremes]:
    connection = duckdb.connect()
    connection.execute("create table v (owner text, name text, image text, value double)")
    connection.executemany("insert into v values (?, ?, ?, ?)", rows)
    run: Any = SimpleNamespace(query=lambda sql, given=None: connection.execute(sql).fetchall())
    return find_extremes(run, "select * from v")


def test_extremes_are_what_is_not_clearly_higher_or_lower() -> None:
    values = {"a": 0.1, "b": 0.1, "c": 0.5, "d": 0.9}
    rows = [("m", name, str(image), value + 0.01 * (image % 2)) for name, value in values.items() for image in range(12)]
    assert ranked(rows) == {"m": Extremes(("a", "b"), ("d",))}
    assert ranked(rows[::12]) == {"m": Extremes(("a", "b", "c", "d"), ("d", "c", "a", "b"))}, "one image says nothing"
    assert ranked([row for row in rows if int(row[2]) < 2])["m"].lowest == ("a", "b", "c", "d"), "nor do two"


def test_names_at_both_ends_are_at_neither() -> None:
    assert Extremes(("a", "b"), ("d", "b")).separate() == (("a",), ("d",))
    assert Extremes(("a", "d"), ("d",)).separate() is None
    assert Extremes(("a",), ("d", "a")).separate() is None


# ---- paired effects ----

CHANGES = np.array([0.3, -0.1, 0.0, 0.0, 0.2, 0.0, 0.5, 0.0, 0.0, -0.4, 0.0, 0.0])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (CHANGES, (0.041666667, -0.189560295, 0.255469226, 0.625)),
        (np.maximum(CHANGES, 0), (0.083333333, -0.167345802, 0.286471307, 0.25)),
        (np.ones(12), (1.0, 0.657061687, 1.0, 0.000488281)),
        (np.zeros(10), (0.0, -0.2775328, 0.2775328, 1.0)),
        (np.full(9, 0.25), (0.25, NAN, NAN, NAN)),
        (np.zeros(0), (NAN, NAN, NAN, NAN)),
    ],
)
def test_few_changes(changes: Any, expected: tuple[float, ...]) -> None:
    assert few_effects(changes) == pytest.approx(expected, abs=2e-9, nan_ok=True)
    mirrored = few_effects(-changes)
    value, low, high, p = expected
    assert mirrored == pytest.approx((-value, -high, -low, p), abs=2e-9, nan_ok=True)


def first_of(found: Effects) -> list[float]:
    return [float(values[0]) for values in (found.value, found.low, found.high, found.p)]


def test_effects_of_shares_means_and_ratios() -> None:
    old = np.array([[1, 0, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1]], dtype=float).T
    new = np.array([[1, 1, 0, 0, 0, 0, 1, 1, 0, 1, 0, 1]], dtype=float).T
    assert first_of(share_effects(old, new)) == pytest.approx([-0.25, -0.56726648, 0.138695051, 0.375], abs=2e-9)
    assert stats.binomtest(1, 5).pvalue == pytest.approx(0.375) == float(mcnemar(np.array([4.0]), np.array([1.0]))[0])
    before = np.linspace(0.1, 0.9, 14)[:, None]
    after = before**1.3 + np.sin(np.arange(14))[:, None] * 0.05
    found = first_of(mean_effects(before, after, resamples=500))
    assert found == pytest.approx([-0.072266528, -0.100725732, -0.043807324, 0.001996008], abs=2e-9)
    found = first_of(ratio_effects(before, after, resamples=500))
    assert found == pytest.approx([-0.144533056, -0.212513685, -0.070683923, 0.001996008], abs=2e-9)


def test_many_tests_and_few_images() -> None:
    assert holm(np.array([0.01, NAN, 0.04, 0.03])) == pytest.approx([0.03, NAN, 0.06, 0.06], nan_ok=True)
    assert holm(np.array([0.7, 0.6])).tolist() == [1, 1] and holm(np.array([NAN])).shape == (1,)
    old, new = np.linspace(0, 1, 10)[:, None], np.linspace(0.3, 1, 10)[:, None]
    assert not np.isnan(mean_effects(old, new, resamples=50).low).any()
    assert np.isnan(ratio_effects(old[1:], new[1:], resamples=50).low).all(), "nine images are too few"
    none = share_effects(np.full((3, 1), NAN), np.ones((3, 1)))
    assert np.isnan([none.value, none.low, none.high, none.p]).all()


def test_resamples_are_the_same_everywhere() -> None:
    assert resampled_sums(np.arange(5.0)[:, None], 3, 4).ravel().tolist() == [15, 14, 8, 11]
    assert draw_below(12345, np.array([0, 7]), 4, 10).tolist() == [[6, 1, 8, 0], [0, 8, 7, 5]]
    assert RESAMPLES == 10_000
