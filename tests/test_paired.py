"""Paired tests against independent references, brute force, and simulation."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from brinell.comparison.paired import MIN_IMAGES, few_effects, holm, mcnemar, mean_effects, ratio_effects, share_effects
from brinell.comparison.resampling import draw_below, resampled_sums
from brinell.draws import Draws, key


@pytest.mark.parametrize(("lost", "gained"), [(0, 0), (0, 5), (3, 3), (4, 12), (1, 9), (120, 170), (5000, 5300)])
def test_mcnemar_is_the_binomial_test(lost: int, gained: int) -> None:
    theirs = stats.binomtest(lost, lost + gained, 0.5).pvalue if lost + gained else 1.0
    ours = mcnemar(np.array([float(lost)]), np.array([float(gained)]))
    assert ours[0] == pytest.approx(theirs, rel=1e-9)


def answers(both: int, lost: int, gained: int, neither: int) -> tuple[np.ndarray, np.ndarray]:
    old = np.repeat([1.0, 1, 0, 0], [both, lost, gained, neither])[:, None]
    return old, np.repeat([1.0, 0, 1, 0], [both, lost, gained, neither])[:, None]


def test_a_share_s_change_and_its_interval() -> None:
    """Bonett and Price's formula, written out for one table."""
    found = share_effects(*answers(60, 4, 12, 24))
    assert found.value[0] == pytest.approx(0.08)
    lost, gained = 5 / 102, 13 / 102
    half = 1.959964 * math.sqrt((lost + gained - (gained - lost) ** 2) / 102)
    assert (found.low[0], found.high[0]) == pytest.approx((gained - lost - half, gained - lost + half), abs=1e-6)
    assert found.p[0] == pytest.approx(stats.binomtest(4, 16).pvalue)


def test_no_change_is_not_certain_and_no_image_is_no_test() -> None:
    same = share_effects(*answers(20, 0, 0, 4))
    assert same.value[0] == 0 and same.p[0] == 1 and same.high[0] - same.low[0] > 0.1
    assert math.isnan(share_effects(np.full((5, 1), np.nan), np.ones((5, 1))).p[0])


def test_holm_is_its_definition() -> None:
    """The smallest p times m, the next times m - 1, and so on; never less than the one before."""
    p = np.array([0.04, 0.001, np.nan, 0.03, 0.5])
    by_hand = {1: 0.004, 3: 0.09, 0: 0.09, 4: 0.5}
    adjusted = holm(p)
    assert {place: adjusted[place] for place in by_hand} == pytest.approx(by_hand)
    assert math.isnan(adjusted[2]) and len(holm(np.array([]))) == 0
    assert holm(np.array([0.6, 0.7])).tolist() == [1, 1]


def numbers(seed: int, *shape: int) -> np.ndarray:
    """Uniform numbers, for simulations."""
    return np.random.default_rng(seed).random(shape)


@pytest.mark.parametrize(
    ("streams", "count", "bound"), [(40, 13, 13), (3, 1000, 1000), (7, 5, 2**31), (0, 3, 3), (2, 0, 1)]
)
def test_draws_without_torch_are_the_draws(streams: int, count: int, bound: int) -> None:
    """Bit by bit, for numbers of streams that are far apart, too."""
    for start in (0, 10**12):
        theirs = Draws.of(key("bootstrap", 5), torch.arange(start, start + streams)).below(0, count, bound)
        ours = draw_below(key("bootstrap", 5), np.arange(start, start + streams), count, bound)
        assert ours.dtype == np.int64 and np.array_equal(ours, theirs.numpy())


def test_resampled_sums_are_sums_of_what_was_drawn() -> None:
    columns = numbers(0, 13, 2, 3)
    picks = Draws.of(key("bootstrap", 5), torch.arange(40)).below(0, 13, 13)
    plain = np.stack([columns[row].sum(0) for row in picks.numpy()])
    np.testing.assert_allclose(resampled_sums(columns, 5, 40), plain)


def test_resamples_don_t_depend_on_how_many_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = numbers(1, 30, 2)
    whole = resampled_sums(columns, 0, 100)
    monkeypatch.setattr("brinell.comparison.resampling._DRAWS_AT_ONCE", 70)
    np.testing.assert_allclose(resampled_sums(columns, 0, 100), whole)


@pytest.mark.parametrize(("images", "made"), [(30, [2, 2, 1]), (35, [2, 2, 1]), (90, [1] * 5), (1, [5]), (14, [5])])
def test_few_resamples_are_made_at_once(images: int, made: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as their draws fit into a limit, and at least one."""
    at_once: list[int] = []

    def draw(name: int, streams: Any, count: int, bound: int) -> Any:
        at_once.append(len(streams))
        return draw_below(name, streams, count, bound)

    monkeypatch.setattr("brinell.comparison.resampling.draw_below", draw)
    monkeypatch.setattr("brinell.comparison.resampling._DRAWS_AT_ONCE", 70 if images > 1 else 5)
    resampled_sums(numbers(1, images, 2), 0, 5)
    assert at_once == made


@pytest.mark.parametrize("relative", [False, True], ids=["difference", "ratio"])
def test_the_bootstrap_is_a_plain_loop(relative: bool) -> None:
    """Resample after resample, image after image, with the error that the docstring tells."""
    old, new = numbers(2, 40, 1) + 0.2, numbers(3, 40, 1) + 0.3
    old[7], new[11] = np.nan, np.nan
    known = ~np.isnan(old[:, 0]) & ~np.isnan(new[:, 0])

    def one(a: np.ndarray, b: np.ndarray, reach: float) -> tuple[float, float]:
        each = b / b.mean() - a / a.mean() if relative else b - a
        value = math.log(b.mean() / a.mean()) if relative else each.mean()
        return value, math.sqrt((each.var() + 2 * reach**2 / len(a)) / len(a))

    a, b = old[known, 0], new[known, 0]
    each = b / b.mean() - a / a.mean() if relative else b - a
    value, error = one(a, b, abs(each).max())
    longer = 1 + 0.75 * a.std() / a.mean() / math.sqrt(len(a)) if relative else 1.0
    away = []
    for row in Draws.of(key("bootstrap", 0), torch.arange(500)).below(0, 40, 40).numpy():
        kept = row[known[row]]
        there, its = one(old[kept, 0], new[kept, 0], abs(each).max())
        away.append(longer * abs(there - value) / its)
    half = sorted(away)[math.ceil(0.95 * 501) - 1] * error
    p = (1 + sum(far >= abs(value / error) for far in away)) / 501
    plain = math.sqrt((each.var(ddof=1) + 2 * value**2 / len(a)) / len(a))  # two more images don't change
    half = max(half, stats.t.ppf(0.975, len(a) - 1) * plain)
    p = max(p, 2 * stats.t.sf(abs(value) / plain, len(a) - 1))
    interval = (value, value - half, value + half)
    expected = tuple(map(math.expm1, interval)) if relative else interval
    found = (ratio_effects if relative else mean_effects)(old, new, resamples=500)
    assert (found.value[0], found.low[0], found.high[0]) == pytest.approx(expected)
    assert found.p[0] == pytest.approx(p)


COLUMNS = 2000


@pytest.mark.parametrize("images", [10, 24, 100])
@pytest.mark.parametrize("rest", [0.02, 0.1])
def test_changes_that_nearly_all_images_share_are_not_certain(images: int, rest: float) -> None:
    """A sample in which all change by the same amount has no spread, though the truth differs: some don't change."""
    new = np.where(numbers(8, images, COLUMNS) < rest, 0.0, 0.06)
    found = mean_effects(np.zeros_like(new), new, resamples=400)
    assert ((found.low <= 0.06 * (1 - rest)) & (0.06 * (1 - rest) <= found.high)).mean() > 0.93
    assert (found.high - found.low)[(new != 0).sum(0) >= 10].max() < 0.06, "and yet narrow"


@pytest.mark.parametrize("images", [20, 60, 200])
@pytest.mark.parametrize("kind", ["even", "skewed", "areas", "few"])
def test_false_alarms_are_as_rare_as_they_should_be(images: int, kind: str) -> None:
    """Two samples of one distribution, 2000 times: about 5 % are called different, and intervals miss as often."""
    one, other = numbers(4, images, COLUMNS), numbers(5, images, COLUMNS)
    if kind == "skewed":
        one, other = -np.log(one), -np.log(other)
    elif kind == "areas":  # steps of 1/11, with what an image is to both
        hard = numbers(6, images, COLUMNS)
        one, other = (np.clip(np.round(11 * (hard + 0.2 * (each - 0.5))), 0, 11) / 11 for each in (one, other))
    elif kind == "few":  # most images are the same in both
        same = numbers(7, images, COLUMNS) < 0.8
        other = np.where(same, one, other)
    found = mean_effects(one, other, resamples=1000)
    alarms = (found.p < 0.05).mean()
    assert alarms <= (0.07 if images == 20 else 0.064) and (alarms >= 0.036 or kind == "few")
    # few differences have an exact p-value and an interval of another kind
    tolerance = 0.02 if kind == "few" else 0.006
    assert ((found.low > 0) | (found.high < 0)).mean() == pytest.approx(alarms, abs=tolerance)


def test_the_ratio_s_false_alarms() -> None:
    one, other = (-np.log(numbers(seed, 100, COLUMNS)) for seed in (8, 9))
    assert (ratio_effects(one, other, resamples=1000).p < 0.05).mean() == pytest.approx(0.042, abs=0.014)


def test_mcnemar_s_false_alarms_and_the_interval_s_misses() -> None:
    old, new = (numbers(seed, 200, COLUMNS) < 0.8 for seed in (10, 11))
    found = share_effects(old.astype(float), new.astype(float))
    assert 0.02 < (found.p < 0.05).mean() < 0.055, "exact, so a little too rare"
    assert ((found.low > 0) | (found.high < 0)).mean() == pytest.approx(0.05, abs=0.014)


def test_real_changes_are_found_and_intervals_hold_them() -> None:
    old = numbers(12, 150, COLUMNS)
    new = old + 0.05 + 0.2 * (numbers(13, 150, COLUMNS) - 0.5)
    found = mean_effects(old, new, resamples=1000)
    assert (found.p < 0.05).all()
    assert ((found.low <= 0.05) & (found.high >= 0.05)).mean() == pytest.approx(0.95, abs=0.014)


def test_what_can_t_be_tested() -> None:
    few = mean_effects(numbers(14, MIN_IMAGES - 1, 1), numbers(15, MIN_IMAGES - 1, 1), resamples=100)
    assert math.isnan(few.p[0]) and math.isnan(few.low[0]) and not math.isnan(few.value[0])
    same = numbers(16, 30, 1)
    equal = mean_effects(same, same.copy(), resamples=100)
    assert (equal.value[0], equal.p[0]) == (0, 1)
    assert -0.2 < equal.low[0] < 0 < equal.high[0] < 0.2, "30 images that don't differ are no proof"


@pytest.mark.parametrize(("gains", "losses"), [(0.01, 0.0), (0.02, 0.02), (0.05, 0.01), (0.1, 0.1)])
@pytest.mark.parametrize("images", [10, 24, 100])
def test_intervals_of_sparse_changes_hold(gains: float, losses: float, images: int) -> None:
    kind, size = numbers(20, images, COLUMNS), numbers(21, images, COLUMNS)
    new = np.where(kind < gains, size, np.where(kind > 1 - losses, -size, 0.0))
    found = mean_effects(np.zeros_like(new), new, resamples=200)
    truth = (gains - losses) / 2
    assert ((found.low <= truth) & (truth <= found.high)).mean() > 0.9


def test_the_p_value_of_few_changes_is_that_of_all_signs() -> None:
    changes = np.zeros(40)
    changes[:6] = [0.1, 0.2, 0.3, 0.1, 0.5, 0.4]
    assert few_effects(changes)[3] == pytest.approx(2 / 2**6)  # all gains: only all losses are as far out
    theirs = stats.permutation_test((changes[:6],), np.mean, permutation_type="samples", n_resamples=np.inf)
    assert few_effects(changes)[3] == pytest.approx(theirs.pvalue)
