"""Intervals, from counts and moments: pure functions of numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy import special  # scipy.stats has the same under other names, and takes a second to import

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        return f"{self.value:{spec}} [{self.low:{spec}}, {self.high:{spec}}]" if spec else repr(self)


def proportion(successes: int, total: int) -> Estimate:
    """A share with Wilson's interval, which stays inside [0, 1] and is right for few samples and for shares near 0 or 1."""
    if total == 0:
        return Estimate(math.nan, math.nan, math.nan)
    share = successes / total
    z = float(special.ndtri((1 + CONFIDENCE) / 2))
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return Estimate(share, max(0.0, centre - half), min(1.0, centre + half))


def mean(value: float, deviation: float | None, count: int, most: float = math.inf) -> Estimate:
    """The mean of numbers in 0..`most` with Student's interval, from the sample's mean and standard deviation.

    Shares that are all 0 or all 1 have no deviation, which doesn't make them certain: theirs is Wilson's interval.
    """
    if most == 1 and value in (0, 1):
        return proportion(round(value * count), count)
    if count < 2 or deviation is None:
        return Estimate(value, math.nan, math.nan)
    half = float(special.stdtrit(count - 1, (1 + CONFIDENCE) / 2)) * deviation / math.sqrt(count)
    return Estimate(value, max(0.0, value - half), min(most, value + half))


def ratio(a: float, b: float, aa: float, ab: float, bb: float, count: int) -> Estimate:
    """Σa / Σb, a share, over `count` groups of which each gives an a of its b; from the sums of a, b, a², ab and b².

    What comes from one group, such as an image, is alike, so the interval is over groups: Student's, of the ratio estimator
    (Cochran 1977, 2.11). Where no group differs from the others, it is Wilson's over the groups.
    """
    if not b:
        return Estimate(math.nan, math.nan, math.nan)
    share = a / b
    if count < 2:
        return Estimate(share, math.nan, math.nan)
    if share in (0, 1):
        return proportion(round(share * count), count)
    variance = max(0.0, aa - 2 * share * ab + share * share * bb) * count / (count - 1) / b**2
    half = float(special.stdtrit(count - 1, (1 + CONFIDENCE) / 2)) * math.sqrt(variance)
    return Estimate(share, max(0.0, share - half), min(1.0, share + half))


def first_below(values: list[float], threshold: float) -> int | None:
    """The first place whose value lies below the threshold; None where none does."""
    return next((place for place, value in enumerate(values) if value < threshold), None)
