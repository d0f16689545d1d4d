"""Smoothed curves of samples: exact for quadratics, raw where the bandwidth is one level, with errors over images."""

from __future__ import annotations

import numpy as np
import pytest

from brinell.lenses.profile.smoothing import RAW, choose_bandwidth, fit_coefficients, mean_curve, smooth

LEVELS = np.arange(30)
QUADRATIC = 0.9 - 0.02 * LEVELS + 0.0003 * LEVELS**2


def sample(images: int, share: float, seed: int = 0) -> np.ndarray:
    """Weights of a sample of levels."""
    return (np.random.default_rng(seed).random((images, 30)) < share) / share


@pytest.mark.parametrize("bandwidth", [2.0, 5.0, 14.0])
def test_a_quadratic_curve_is_found_exactly(bandwidth: float) -> None:
    found = smooth(np.tile(QUADRATIC, (50, 1)), sample(50, 0.2), bandwidth)
    assert found.value == pytest.approx(QUADRATIC, abs=1e-6)
    assert found.variance == pytest.approx(np.zeros(30), abs=1e-9)


def test_a_bandwidth_of_one_level_is_the_mean_at_that_level() -> None:
    weights, values = sample(200, 0.3), np.random.default_rng(1).random((200, 30))
    found = smooth(values, weights, RAW)
    assert found.value == pytest.approx((weights * values).sum(0) / weights.sum(0))
    assert found.images == pytest.approx((weights > 0).sum(0))


def test_fits_have_weights_that_add_up_to_one() -> None:
    totals = np.array([sample(12, 0.1).sum(0), sample(300, 0.1).sum(0)])
    fits = fit_coefficients(totals, np.array([RAW, 3.0, 9.0]))
    assert (fits * totals[None, :, None]).sum(-1) == pytest.approx(np.ones((3, 2, 30)), abs=1e-5)


def test_errors_are_those_of_repeated_samples() -> None:
    """The variance over images is that of the curve over many samples, in which an image's levels are correlated."""
    generator, curves, variances = np.random.default_rng(0), [], []
    for seed in range(300):
        breaks = generator.logistic(15, 4, 80)
        values = (breaks[:, None] > LEVELS).astype(float)
        found = smooth(values, sample(80, 0.3, seed), 5.0)
        curves.append(found.value)
        variances.append(found.variance)
    ratio = np.mean(variances, axis=0)[3:27] / np.var(curves, axis=0)[3:27]
    assert 0.8 < ratio.mean() < 1.2


def test_steep_curves_get_narrow_bandwidths() -> None:
    weights = sample(400, 0.3)
    steep = np.tile((LEVELS < 12).astype(float), (400, 1))
    flat = np.random.default_rng(1).random((400, 30)) < 0.5
    assert choose_bandwidth(steep, weights) < choose_bandwidth(flat.astype(float), weights)


def test_the_mean_of_curves_is_over_those_that_have_a_level() -> None:
    weights, values = sample(40, 0.5), np.random.default_rng(0).random((40, 30))
    whole, short = smooth(values, weights, 4.0), smooth(values[:, :5], weights[:, :5], 4.0)
    both = mean_curve([whole, short])
    assert both.value[:5] == pytest.approx((whole.value[:5] + short.value) / 2)
    assert both.value[5:] == pytest.approx(whole.value[5:])
