"""Paired tests of two models on the same images, with confidence intervals: pure functions of numbers.

Values are float64 (images, columns), NaN where an image has none; a column is one figure, such as an operator's area.
Bootstrap resamples are over images, the same ones for all columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from brinell.comparison.resampling import RESAMPLES, Array, resampled_sums
from brinell.runs.quantiles import normal_quantile, student_chance, student_quantile
from brinell.runs.statistics import CONFIDENCE, mean

MIN_IMAGES = 10  # with a value in both; a bootstrap of the mean of fewer says little

FEW = 10  # images that differ; a bootstrap of fewer misses changes that were not drawn
UNCHANGED = 2  # images besides those of the sample that did not change, for Student's interval; by simulation
SKEWED = 0.75  # how much of the relative error of a mean distance intervals of a change grow by; by simulation


@dataclass(frozen=True)
class Effects:
    """The effect of each column, its 95 % interval and the two-sided p-value of no effect."""

    value: Array
    low: Array
    high: Array
    p: Array


# ---- shares ----


def mcnemar(lost: Array, gained: Array) -> Array:
    """Return the exact two-sided p-value of McNemar's test, from how many images changed in each direction."""
    tails = [_binomial_tail(int(min(pair)), int(sum(pair))) for pair in zip(lost.flat, gained.flat, strict=True)]
    p: Array = np.minimum(1.0, 2 * np.array(tails)).reshape(lost.shape)
    return p


def _binomial_tail(most: int, count: int) -> float:
    """Return the probability of at most so many heads in `count` tosses, where that is at most half of them."""
    log = math.lgamma(count + 1) - math.lgamma(most + 1) - math.lgamma(count - most + 1) - count * math.log(2)
    heads = np.arange(most, 0, -1)
    ratios = np.cumprod(heads / (count - heads + 1))  # of the other terms to the largest
    return math.exp(log) * (1 + float(ratios.sum()))


def share_effects(old: Array, new: Array) -> Effects:
    """Return the change of shares, for values of 0 or 1: McNemar's test, and the interval of Bonett and Price (2012).

    Their interval is the Wald interval with one more image changed in each direction, so that it holds for few changes and
    has a width even for none.
    """
    known = ~np.isnan(old) & ~np.isnan(new)
    lost, gained = ((known & (one > other)).sum(0).astype(np.float64) for one, other in ((old, new), (new, old)))
    count = known.sum(0).astype(np.float64)
    centre = (gained - lost) / (count + 2)
    spread = (gained + lost + 2) / (count + 2) - centre**2
    half = normal_quantile((1 + CONFIDENCE) / 2) * np.sqrt(spread / (count + 2))
    with np.errstate(invalid="ignore"):
        value = (gained - lost) / count
    none = count == 0
    low, high = np.maximum(-1, centre - half), np.minimum(1, centre + half)
    return Effects(value, *(np.where(none, np.nan, each) for each in (low, high, mcnemar(lost, gained))))


# ---- means ----

Sums = tuple[Array, Array, Array, Array, Array, Array]  # of 1, a, b, a², ab, b² over images with both a and b


def mean_effects(old: Array, new: Array, *, seed: int = 0, resamples: int = RESAMPLES) -> Effects:
    """Return the change of means of shares: by a paired bootstrap, or by `few_effects` where few images differ."""
    found = _bootstrap(old, new, _difference, new - old, seed, resamples)
    few = np.flatnonzero((np.nan_to_num(new - old) != 0).sum(0) < FEW)
    for column in few.tolist():
        change = (new - old)[:, column]
        value, low, high, p = few_effects(change[~np.isnan(change)])
        found.value[column], found.low[column], found.high[column], found.p[column] = value, low, high, p
    return found


def few_effects(changes: Array) -> tuple[float, float, float, float]:
    """Return the mean change of shares of which most don't change, its interval and the two-sided p-value.

    The interval combines those of gains and of losses (MOVER, Zou and Donner 2008), so it has a width even where nothing
    changes. The p-value is exact: the share of all signs of the changes with a mean as far from zero.
    """
    count = len(changes)
    if count < MIN_IMAGES:
        return float(changes.mean()) if count else math.nan, math.nan, math.nan, math.nan
    parts = np.maximum(np.stack([changes, -changes]), 0)
    (gain, loss), (spread, other) = parts.mean(1), parts.std(1, ddof=1)
    better, worse = (mean(float(m), float(s), count, most=1) for m, s in ((gain, spread), (loss, other)))
    both = float(spread * other)
    correlation = -float(gain * loss) * count / (count - 1) / both if both else 0.0  # an image gains or loses, never both
    below = _joint(gain - better.low, worse.high - loss, correlation)
    above = _joint(better.high - gain, loss - worse.low, correlation)
    changed = changes[changes != 0]
    signs = 1 - 2 * (np.arange(2 ** len(changed))[:, None] >> np.arange(len(changed)) & 1)
    p = float((np.abs(signs @ changed) >= abs(changed.sum()) * (1 - 1e-9)).mean())
    value = float(gain - loss)
    return value, max(-1.0, value - below), min(1.0, value + above), p


def _joint(one: float, other: float, correlation: float) -> float:
    return math.sqrt(max(0.0, one**2 + other**2 - 2 * correlation * one * other))


def ratio_effects(old: Array, new: Array, *, seed: int = 0, resamples: int = RESAMPLES) -> Effects:
    """Return the relative change of means (0.1: a tenth more), by a paired bootstrap of the logarithm of their ratio.

    A few skewed distances rarely include the largest, so that resamples of them differ too little: the interval is longer
    by a part of the relative error of the old mean (docs/statistics.md).
    """
    known = ~np.isnan(old) & ~np.isnan(new)
    with np.errstate(divide="ignore", invalid="ignore"):
        before, after = (np.where(known, each, 0).sum(0) / known.sum(0) for each in (old, new))
        relative = np.sqrt(np.where(known, (old / before - 1) ** 2, 0).sum(0)) / known.sum(0)
        found = _bootstrap(old, new, _log_ratio, new / after - old / before, seed, resamples, longer=1 + SKEWED * relative)
    return Effects(np.expm1(found.value), np.expm1(found.low), np.expm1(found.high), found.p)


def _difference(sums: Sums) -> tuple[Array, Array]:
    """Return the difference of means, and the variance of an image's contribution to it."""
    count, a, b, aa, ab, bb = sums
    value = (b - a) / count
    return value, np.maximum((bb - 2 * ab + aa) / count - value**2, 0)


def _log_ratio(sums: Sums) -> tuple[Array, Array]:
    """Return the logarithm of the ratio of means, and the variance of an image's contribution to it."""
    count, a, b, aa, ab, bb = sums
    spread = count * (bb / b**2 - 2 * ab / (a * b) + aa / a**2)
    return np.log(b / a), np.maximum(spread, 0)


def _bootstrap(
    old: Array,
    new: Array,
    effect: Callable[[Sums], tuple[Array, Array]],
    each: Array,
    seed: int,
    resamples: int,
    longer: Array | float = 1.0,
) -> Effects:
    """Return the symmetric bootstrap-t (Hall 1988) of an effect; `each` is an image's contribution to it.

    The interval is made some times `longer`.

    As in Bonett and Price's interval, the error counts two more images, one in each direction as far out as the farthest:
    if few images differ, resamples without any of them would otherwise have no error at all. Where nearly all images
    change by the same amount, resamples hardly differ either: so the interval is at least as long as Student's, which
    counts two more images that don't change at all.
    """
    known = ~np.isnan(old) & ~np.isnan(new)
    a, b = (np.where(known, values, 0.0) for values in (old, new))
    columns = np.stack([known.astype(np.float64), a, b, a * a, a * b, b * b], 1)  # (N, 6, K)
    reach = np.abs(np.where(known, each, 0.0)).max(0)

    def studentise(sums: Array) -> tuple[Array, Array]:
        value, variance = effect(tuple(np.moveaxis(sums, -2, 0)))
        count = sums[..., 0, :]
        return value, np.sqrt((variance + 2 * reach**2 / count) / count)

    with np.errstate(divide="ignore", invalid="ignore"):
        value, error = studentise(columns.sum(0))
        found, errors = studentise(resampled_sums(columns, seed, resamples))
        away = np.nan_to_num(longer * np.abs((found - value) / errors), nan=math.inf, posinf=math.inf)
        away[:, error == 0] = 0  # no image differs, in any resample
        here = np.where(error > 0, np.abs(value / error), 0.0)
        rank = min(resamples, math.ceil(CONFIDENCE * (resamples + 1)))
        half = np.where(error > 0, np.partition(away, rank - 1, axis=0)[rank - 1] * error, 0.0)
        plain, chance = _student(value, effect(tuple(columns.sum(0)))[1], known.sum(0))
        half = np.maximum(half, plain)
    p = np.maximum(((away >= here * (1 - 1e-9)).sum(0) + 1) / (resamples + 1), chance)
    few = known.sum(0) < MIN_IMAGES
    return Effects(value, *(np.where(few, np.nan, each) for each in (value - half, value + half, p)))


def _student(value: Array, variance: Array, count: Array) -> tuple[Array, Array]:
    """Return half of Student's interval with some unchanged images more, and its two-sided p-value; NaN for one image."""
    half, chance = np.full_like(value, np.nan), np.full_like(value, np.nan)
    for column in np.flatnonzero((count > 1) & np.isfinite(value)):
        freedom = int(count[column]) - 1
        error = math.sqrt(variance[column] / freedom + UNCHANGED * (value[column] / count[column]) ** 2)
        half[column] = student_quantile(freedom, (1 + CONFIDENCE) / 2) * error
        chance[column] = student_chance(freedom, value[column] / error) if error else 1.0
    return half, chance


# ---- many tests ----


def holm(p: Array) -> Array:
    """Return p-values adjusted for their number (Holm 1979); NaN counts as no test."""
    adjusted = np.full_like(p, np.nan)
    made = np.flatnonzero(~np.isnan(p))
    order = made[np.argsort(p[made], kind="stable")]
    steps = np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)) if len(order) else p[order]
    adjusted[order] = np.minimum(1.0, steps)
    return adjusted


# ---- any of them ----


def paired_effects(unit: str, old: Array, new: Array, *, yes_or_no: bool, seed: int) -> Effects:
    """Return the effects of values in a unit, points or percent, by the right test: an average of shares is a mean."""
    if unit == "percent":
        return ratio_effects(old, new, seed=seed)
    if not yes_or_no:
        return mean_effects(old, new, seed=seed)
    whole = ~((np.nan_to_num(old) % 1).any(0) | (np.nan_to_num(new) % 1).any(0))
    shares = share_effects(old, new)
    if whole.all():
        return shares
    means = mean_effects(old[:, ~whole], new[:, ~whole], seed=seed)
    for name in ("value", "low", "high", "p"):
        getattr(shares, name)[~whole] = getattr(means, name)
    return shares
