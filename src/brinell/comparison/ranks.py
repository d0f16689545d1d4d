"""Means and ranks of many models over the same images, with intervals: pure functions of arrays."""

from __future__ import annotations

import numpy as np

from brinell.comparison.resampling import Array
from brinell.runs.statistics import CONFIDENCE, Estimate, mean


def mean_over_operators(values: Array, most: float) -> list[Estimate]:
    """Return each model's mean over operators, of values (images, operators, models) in [0, most].

    Intervals are over images. Operators may have values for different images.
    """
    values = values[(~np.isnan(values)).any((1, 2))]
    images, known = len(values), ~np.isnan(values)
    count = known.sum(0)  # by operator and model
    means = np.nansum(values, 0) / count
    contributions = np.where(known, (values - means) * images / count, 0).mean(1)  # of every image to the mean
    deviations = np.sqrt((contributions**2).sum(0) / max(1, images - 1))
    return [mean(float(m), float(d), images, most) for m, d in zip(means.mean(0), deviations, strict=True)]


def rank_values(values: Array) -> Array:
    """Return ranks along the last axis, from 1 for the smallest; equal values share their mean rank."""
    less = (values[..., None, :] < values[..., :, None]).sum(-1)
    same = (values[..., None, :] == values[..., :, None]).sum(-1)
    ranks: Array = less + (same + 1) / 2
    return ranks


def percentile_intervals(samples: Array) -> list[Estimate]:
    """Return the first row with the percentiles of the others."""
    tail = (1 - CONFIDENCE) / 2
    low, high = np.nanquantile(samples[1:], [tail, 1 - tail], axis=0)
    return [Estimate(*map(float, each)) for each in zip(samples[0], low, high, strict=True)]
