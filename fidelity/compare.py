"""Curves in numbers, with intervals from resampled images: pure functions of arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from brinell.draws import Draws, key

NEVER = 31  # one past the last level, so that "never" sorts last
RESAMPLES = 2000

Array = NDArray[np.float64]
Outcomes = NDArray[np.bool_]


def area(curves: Array) -> Array:
    """Mean over levels 0..30, along the last axis."""
    return curves.mean(-1)


def kept(curves: Array) -> Array:
    """Accuracy as a share of the clean accuracy, so that networks of different accuracy can be compared."""
    return curves / curves[..., :1]


def first_below(curves: Array, threshold: float = 0.5) -> NDArray[np.int64]:
    """The first level below the threshold, along the last axis; NEVER where there is none."""
    below = curves < threshold
    return np.where(below.any(-1), below.argmax(-1), NEVER)


def distance(left: Array, right: Array) -> float:
    """Mean absolute difference of two curves."""
    return float(np.abs(left - right).mean())


def rank_correlation(left: Array, right: Array) -> float:
    """Spearman's."""
    return float(stats.spearmanr(left, right).statistic)


def interval(values: Array) -> tuple[float, float]:
    """The middle 95 %."""
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


def resampled(outcomes: Sequence[Outcomes]) -> Array:
    """Curves (resamples, len(outcomes), levels) on images drawn with replacement, the same ones for every member."""
    count = len(outcomes[0])
    places = Draws.of(key("fidelity", "bootstrap"), torch.arange(RESAMPLES)).below(0, count, count).numpy()
    times = np.zeros((RESAMPLES, count))
    np.add.at(times, (np.arange(RESAMPLES)[:, None], places), 1)
    return np.stack([times @ right / count for right in outcomes], 1)
