"""Confidence intervals from counts and moments: pure functions of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from brinell.runs.quantiles import normal_quantile, student_quantile

CONFIDENCE = 0.95
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
    """Return a proportion with its Wilson interval, which stays in [0, 1] and suits small samples and extreme values."""
    if total == 0:
        return Estimate(math.nan, math.nan, math.nan)
    share = successes / total
    z = normal_quantile((1 + CONFIDENCE) / 2)
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return Estimate(share, max(0.0, centre - half), min(1.0, centre + half))


def mean(value: float, deviation: float | None, count: int, most: float = math.inf) -> Estimate:
    """Return a mean of numbers in [0, `most`] with Student's interval, from the sample's mean and standard deviation.

    Shares that are all 0 or all 1 have no deviation, but that does not make them certain: they get the Wilson interval.
    """
    if most == 1 and value in (0, 1):
        return proportion(round(value * count), count)
    if count < 2 or deviation is None:
        return Estimate(value, math.nan, math.nan)
    half = student_quantile(count - 1, (1 + CONFIDENCE) / 2) * deviation / math.sqrt(count)
    return Estimate(value, max(0.0, value - half), min(most, value + half))


def ratio(a: float, b: float, aa: float, ab: float, bb: float, count: int) -> Estimate:
    """Return the share Σa / Σb over `count` clusters with counts a ≤ b each, from the sums of a, b, a², ab and b².

    Observations of one cluster, such as an image, are correlated, so the interval is over clusters: Student's, of the ratio
    estimator (Cochran 1977, 2.11). Where the share is 0 or 1, it is the Wilson interval over clusters.
    """
    if not b:
        return Estimate(math.nan, math.nan, math.nan)
    share = a / b
    if count < 2:
        return Estimate(share, math.nan, math.nan)
    if share in (0, 1):
        return proportion(round(share * count), count)
    variance = max(0.0, aa - 2 * share * ab + share * share * bb) * count / (count - 1) / b**2
    half = student_quantile(count - 1, (1 + CONFIDENCE) / 2) * math.sqrt(variance)
    return Estimate(share, max(0.0, share - half), min(1.0, share + half))


def overlap(one: Estimate, other: Estimate) -> bool:
    """Whether two intervals overlap; without an interval nothing is known, so they do."""
    return not (one.high < other.low or other.high < one.low)


def first_below(values: Sequence[float], threshold: float) -> int | None:
    """Return the index of the first value below the threshold; None if there is none."""
    return next((index for index, value in enumerate(values) if value < threshold), None)
