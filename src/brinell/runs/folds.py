"""Intervals of figures that are no means over images, such as average precision: the delete-a-group jackknife.

Images belong to one of 20 folds by their ids, the same in every run. A figure is computed without each fold in turn; how
much it varies is how uncertain it is, and a difference of two models varies as the difference of theirs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from brinell.runs.quantiles import student_quantile
from brinell.runs.statistics import CONFIDENCE, Estimate

FOLDS = 20
FOLD = f"(('0x' || image[1:8])::uinteger % {FOLDS})"  # SQL; ids are hexadecimal digits of a hash


def fold_of(image: str) -> int:
    """Return the fold of an image."""
    return int(image[:8], 16) % FOLDS


@dataclass(frozen=True)
class Replicated:
    """A figure, and the same without each fold of the images; None for folds without images."""

    value: float
    without: tuple[float | None, ...]

    def estimate(self, most: float = math.inf) -> Estimate:
        """Return the figure, which is in [0, most], with its interval."""
        half = self._half(self.without)
        if math.isnan(half):
            return Estimate(self.value, math.nan, math.nan)
        return Estimate(self.value, max(0.0, self.value - half), min(most, self.value + half))

    def minus(self, other: Replicated) -> Estimate:
        """Return the difference to another figure over the same images, with its interval."""
        pairs = zip(self.without, other.without, strict=True)
        half = self._half([None if a is None or b is None else a - b for a, b in pairs])
        value = self.value - other.value
        return Estimate(value, value - half, value + half)

    def over(self, other: Replicated) -> Replicated:
        """Return the ratio to another figure over the same images; NaN where that is 0."""
        pairs = zip(self.without, other.without, strict=True)
        ratios = (None if a is None or b is None else _divide(a, b) for a, b in pairs)
        return Replicated(_divide(self.value, other.value), tuple(ratios))

    @staticmethod
    def _half(without: Sequence[float | None]) -> float:
        """Return half the width of the interval; NaN where fewer than two folds have images."""
        known = [each for each in without if each is not None]
        if len(known) < 2 or any(math.isnan(each) for each in known):
            return math.nan
        middle = math.fsum(known) / len(known)
        variance = math.fsum((each - middle) ** 2 for each in known) * (len(known) - 1) / len(known)
        return student_quantile(len(known) - 1, (1 + CONFIDENCE) / 2) * math.sqrt(variance)


def mean_replicated(figures: Sequence[Replicated]) -> Replicated:
    """Return the mean of figures over the same images."""
    columns = zip(*(figure.without for figure in figures), strict=True)
    without = tuple(
        None if None in column else math.fsum(each or 0.0 for each in column) / len(figures) for column in columns
    )
    return Replicated(math.fsum(figure.value for figure in figures) / len(figures), without)


def _divide(a: float, b: float) -> float:
    return a / b if b else math.nan
