"""Which paired test a figure gets, and what holds of all of them; values are in test_reference_values.py."""

from __future__ import annotations

import numpy as np
import pytest

from brinell.comparison.paired import (
    FEW,
    Effects,
    few_effects,
    mean_effects,
    paired_effects,
    ratio_effects,
    share_effects,
)

OLD = np.linspace(0.1, 0.9, 14)[:, None]
NEW = OLD**1.3 + np.sin(np.arange(14))[:, None] * 0.05


def same(found: Effects, expected: Effects) -> None:
    for name in ("value", "low", "high", "p"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_the_unit_and_the_values_choose_the_test() -> None:
    same(paired_effects("percent", OLD, NEW, yes_or_no=False, seed=3), ratio_effects(OLD, NEW, seed=3))
    same(paired_effects("points", OLD, NEW, yes_or_no=False, seed=3), mean_effects(OLD, NEW, seed=3))
    before, after = (OLD > 0.3).astype(float), (NEW > 0.5).astype(float)
    same(paired_effects("points", before, after, yes_or_no=True, seed=3), share_effects(before, after))


@pytest.mark.parametrize("broken", ["old", "new"])
def test_an_average_of_shares_is_a_mean_among_shares(broken: str) -> None:
    """In one table: a column of 0 and 1, and one in which a single value, of either model, is a fraction."""
    yes, other = (OLD > 0.3).astype(float), (NEW > 0.5).astype(float)
    old, new = np.concatenate([yes, yes], 1), np.concatenate([other, other], 1)
    (old if broken == "old" else new)[4, 1] = 0.5
    found = paired_effects("points", old, new, yes_or_no=True, seed=3)
    shares, means = share_effects(old[:, :1], new[:, :1]), mean_effects(old[:, 1:], new[:, 1:], seed=3)
    for name in ("value", "low", "high", "p"):
        assert getattr(found, name).tolist() == [getattr(shares, name)[0], getattr(means, name)[0]]


def test_a_change_of_shares_is_at_most_the_whole() -> None:
    zeros, ones = np.zeros((12, 1)), np.ones((12, 1))
    assert share_effects(zeros, ones).high.tolist() == [1.0] and share_effects(ones, zeros).low.tolist() == [-1.0]


@pytest.mark.parametrize("differing", [FEW - 1, FEW])
def test_a_bootstrap_needs_enough_images_that_differ(differing: int) -> None:
    old, new = np.full((20, 1), 0.5), np.full((20, 1), 0.5)
    new[:differing, 0] += np.linspace(0.01, 0.3, differing)
    exact = few_effects((new - old)[:, 0])
    found = mean_effects(old, new, resamples=200)
    assert (float(found.p[0]) == exact[3]) == (differing < FEW)


def test_nothing_differs() -> None:
    found = ratio_effects(OLD, OLD, resamples=50)
    assert (found.value.tolist(), found.p.tolist()) == ([0.0], [1.0])


def test_a_change_of_means_does_not_depend_on_their_level() -> None:
    """Twelve of forty images change, so that the bootstrap's interval is longer than Student's."""
    old = np.tile(np.linspace(0.0, 0.3, 10), 4)[:, None]
    new = old.copy()
    new[:12, 0] += np.where(np.arange(12) % 3 > 0, 0.2, -0.2)
    low, high = (mean_effects(old + level, new + level, seed=3, resamples=2000) for level in (0.0, 0.4))
    for name in ("value", "low", "high", "p"):
        assert getattr(high, name) == pytest.approx(getattr(low, name), rel=1e-6)


def test_one_image_or_no_mean_has_an_effect_without_an_interval() -> None:
    one, none = np.full((12, 1), np.nan), np.zeros((12, 1))
    one[3, 0] = 0.5
    found = ratio_effects(one, one * 1.5, resamples=50)
    assert found.value.tolist() == pytest.approx([0.5]) and np.isnan([found.low, found.high, found.p]).all()
    found = ratio_effects(none, OLD[:12], resamples=50)
    assert np.isinf(found.value).all() and not np.isfinite(found.high).any()
