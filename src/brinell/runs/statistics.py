"""Confidence intervals from counts and moments: pure functions of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from brinell.runs.quantiles import beta_chance, beta_quantile, normal_quantile, student_quantile

CONFIDENCE = 0.95
# constants by simulation (docs/statistics.md)
_UNSEEN = 0.5  # images at 0 (for the lower bound) or 1 (for the upper one) that a sample may have missed
_EXACT = 0.04  # error of the exact one-sided bound that Wilson's interval reaches to at least
_SMALL = 25  # observations; with more of either kind, Wilson's interval always reaches farther
_LONGER, _SHORTER = 3.0, 0.5  # times the relative error: what the upper part of an interval grows by, the lower one shrinks
_MOST = 0.5  # by which either does
THRESHOLDS = (0.9, 0.5, 0.1)  # accuracies whose failure points are reported by default


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % confidence interval; the bounds are NaN where there is none."""

    value: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        return f"{self.value:{spec}} [{self.low:{spec}}, {self.high:{spec}}]" if spec else repr(self)


def proportion(successes: int, total: int) -> Estimate:
    """Return a proportion with its Wilson interval, extended near 0 and 1."""
    if total == 0:
        return Estimate(math.nan, math.nan, math.nan)
    return Estimate(successes / total, *_wilson(successes / total, total))


def mean(value: float, deviation: float | None, count: int, most: float = math.inf) -> Estimate:
    """Return a mean of numbers in [0, `most`] with its interval, from the sample's mean and standard deviation.

    Shares (`most` is 1) get a score interval, other numbers Student's interval of the logarithm, corrected for skewness:
    both hold for few and skewed numbers, where Student's interval of the mean itself misses far too often
    (docs/statistics.md).
    """
    if count < 2 or deviation is None:
        return Estimate(value, *((math.nan, math.nan) if most != 1 or value not in (0, 1) else _wilson(value, count)))
    if most == 1:
        return Estimate(value, *_score_interval(value, deviation**2, count))
    return _log_interval(value, deviation / math.sqrt(count), count, most)


def effective_mean(value: float, variance: float, images: float, most: float = math.inf) -> Estimate:
    """Return a weighted mean of numbers in [0, `most`] with its interval, from its variance.

    `images` is the number of images of equal weight that its weights amount to.
    """
    count = max(1.0, images)
    if most == 1:
        return Estimate(value, *_score_interval(value, variance * count, count))
    return _log_interval(value, math.sqrt(variance), count, most)


def _log_interval(value: float, error: float, count: float, most: float) -> Estimate:
    """Return a positive mean with the interval of its logarithm, from its standard error.

    A few skewed numbers rarely include the large ones that move their mean. So the upper part of the interval is longer and
    the lower one shorter than Student's, by a share of the relative error, which vanishes as numbers get many.
    """
    half = student_quantile(max(1, int(count) - 1), (1 + CONFIDENCE) / 2) * error
    if value <= 0:
        return Estimate(value, value - half, value + half)
    relative = error / value
    below = half / value * (1 - min(_MOST, _SHORTER * relative))
    above = half / value * (1 + min(_MOST, _LONGER * relative))
    limit = 700.0  # beyond, an exponential is infinite anyway
    return Estimate(value, value * math.exp(-min(limit, below)), min(most, value * math.exp(min(limit, above))))


def ratio(a: float, b: float, aa: float, ab: float, bb: float) -> Estimate:
    """Return the share Σa / Σb over clusters with counts a ≤ b each, from the sums of a, b, a², ab and b².

    Observations of one cluster, such as an image, are correlated, so the interval is over clusters, with the variance of
    the ratio estimator (Cochran 1977, 2.11). Where few clusters have most of b, as few images have most of the failures,
    it is that of as many clusters of equal size as these amount to.
    """
    if not b:
        return Estimate(math.nan, math.nan, math.nan)
    share, count = a / b, int(b * b / bb + 1e-9)
    if count < 2:
        return Estimate(share, math.nan, math.nan)
    variance = max(0.0, aa - 2 * share * ab + share * share * bb) * count**2 / (count - 1) / b**2
    return Estimate(share, *_score_interval(share, variance, count))


def _score_interval(share: float, variance: float, count: float) -> tuple[float, float]:
    """Return the interval of a mean of shares whose variance is that of a proportion, times a dispersion.

    For shares of 0 or 1 the dispersion is 1, and this is a proportion's interval. Other samples may have missed the few
    images at 0 or at 1 that move a mean the most, such as those that are wrong even when clean. So the lower bound counts
    half an image at 0 and the upper one half an image at 1.
    """
    student = student_quantile(max(1, int(count) - 1), (1 + CONFIDENCE) / 2)
    normal = normal_quantile((1 + CONFIDENCE) / 2)
    bounds = []
    for side, farthest in enumerate((share, 1 - share)):
        unseen = _UNSEEN * farthest**2
        spread = (count - 1) * share * (1 - share) + unseen
        dispersion = min(1.0, ((count - 1) * variance + unseen) / spread) if spread else 1.0
        bounds.append(_wilson(share, count / dispersion, normal + (student - normal) * (1 - dispersion))[side])
    return bounds[0], bounds[1]


@lru_cache(8192)
def _wilson(share: float, total: float, quantile: float | None = None) -> tuple[float, float]:
    """Return Wilson's interval of a proportion, which stays in [0, 1] and suits small samples.

    Near 0 and 1 it contains the truth too rarely (Brown, Cai and DasGupta 2001: in 84 % of samples of 10 from 98 %), so it
    reaches at least to the exact one-sided bounds of Clopper and Pearson (1934), which differ for small counts only.
    """
    z = normal_quantile((1 + CONFIDENCE) / 2) if quantile is None else quantile
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    low, high = max(0.0, centre - half), min(1.0, centre + half)
    yes, no = share * total, (1 - share) * total
    # a quantile takes several values of the distribution; most often the first one shows that Wilson's bound is farther out
    if yes <= _SMALL and beta_chance(yes, no + 1, low) > _EXACT:
        low = min(low, beta_quantile(yes, no + 1, _EXACT))
    if no <= _SMALL and beta_chance(no, yes + 1, 1 - high) > _EXACT:
        high = max(high, 1 - beta_quantile(no, yes + 1, _EXACT))
    return low, high


def overlap(one: Estimate, other: Estimate) -> bool:
    """Whether two intervals overlap; without an interval nothing is known, so they do."""
    return not (one.high < other.low or other.high < one.low)


def first_below(values: Sequence[float], threshold: float) -> int | None:
    """Return the index of the first value below the threshold; None if there is none."""
    return next((index for index, value in enumerate(values) if value < threshold), None)
