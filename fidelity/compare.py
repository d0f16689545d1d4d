"""Summary numbers of curves, with intervals from resampled images: pure functions of arrays."""

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
    """Return the mean over levels 0..30, along the last axis."""
    return curves.mean(-1)


def kept(curves: Array) -> Array:
    """Return accuracy as a share of clean accuracy, to compare networks of different accuracy."""
    return curves / curves[..., :1]


def first_below(curves: Array, threshold: float = 0.5) -> NDArray[np.int64]:
    """Return the first level below the threshold, along the last axis; NEVER if there is none."""
    below = curves < threshold
    return np.where(below.any(-1), below.argmax(-1), NEVER)


def distance(left: Array, right: Array) -> float:
    """Return the mean absolute difference of two curves."""
    return float(np.abs(left - right).mean())


def rank_correlation(left: Array, right: Array) -> float:
    """Return Spearman's rank correlation."""
    return float(stats.spearmanr(left, right).statistic)


def interval(values: Array) -> tuple[float, float]:
    """Return the central 95 % interval."""
    low, high = np.percentile(values, [2.5, 97.5])
    return float(low), float(high)


def resampled(outcomes: Sequence[Outcomes]) -> Array:
    """Return curves (resamples, len(outcomes), levels) on images drawn with replacement, the same for every member."""
    count = len(outcomes[0])
    indices = Draws.of(key("fidelity", "bootstrap"), torch.arange(RESAMPLES)).below(0, count, count).numpy()
    times = np.zeros((RESAMPLES, count))
    np.add.at(times, (np.arange(RESAMPLES)[:, None], indices), 1)
    return np.stack([times @ right / count for right in outcomes], 1)
