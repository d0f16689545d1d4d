"""Confidence sequences: intervals of a mean that stay valid however often one looks, and whenever one stops.

Each candidate for the mean is a game that is fair if the candidate is right. Betting against a wrong candidate makes money,
and a candidate against which the capital has grown by 2/alpha is ruled out. The right one is ruled out with probability
alpha at most, at any time (Ville's inequality). This is the hedged capital process of Waudby-Smith and Ramdas (2024),
"Estimating means of bounded random variables by betting", with or without replacement. Its bets are those that grow the
capital fastest if the mean lies `resolution` away from the candidate (half of the capital), or 2, 4, 8, … times as far.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from brinell.runs.statistics import CONFIDENCE, Estimate

Array = NDArray[np.float64]

CANDIDATES = 2001  # means between the least and the largest value; intervals are rounded outwards to them
_MOST_STAKED = 0.75  # of the capital, in a bet
_BLOCK = 256  # values that are evaluated at once
_NEVER = 1e-12  # means so close to 0 or 1 that a bet on less or on more can't win


class ConfidenceSequence:
    """The interval of the mean of numbers between `least` and `most` that arrive in a random order.

    With `size`, they are drawn without replacement from that many, and the mean of all of these is estimated.
    `resolution` is the half-width to reach, or the difference that matters: the interval is narrowest where it is reached.
    `candidates` are the means to test, in ascending order, where the interval itself is not needed.
    """

    def __init__(
        self,
        resolution: float,
        *,
        size: int | None = None,
        least: float = 0.0,
        most: float = 1.0,
        alpha: float = 1 - CONFIDENCE,
        candidates: Array | None = None,
    ) -> None:
        self.size, self.least, self.most, self.alpha = size, least, most, alpha
        self.count = 0
        self._sum = 0.0
        self._spread = 0.0  # squared deviations from the mean of the values so far
        #: Means that are not ruled out.
        self.candidates: Array = np.linspace(least, most, CANDIDATES) if candidates is None else candidates
        self._distances = _distances_from(min(0.5, resolution / (most - least)))
        self._gains: Array = np.zeros(
            (2, len(self._distances), len(self.candidates))
        )  # log capital of bets on more, and on less

    def add(self, values: Array) -> None:
        """Add values in the order in which they arrived."""
        if self.size is not None and self.count + len(values) > self.size:
            raise ValueError(f"{self.count + len(values)} values of a population of {self.size}")
        scaled = self._scale(np.asarray(values, dtype=np.float64))
        if len(scaled) and not (scaled.min() >= -1e-9 and scaled.max() <= 1 + 1e-9):
            raise ValueError(f"expected values from {self.least:g} to {self.most:g}")
        for start in range(0, len(scaled), _BLOCK):
            self._bet(np.clip(scaled[start : start + _BLOCK], 0, 1))

    @property
    def estimate(self) -> Estimate:
        """The mean so far, with its interval."""
        mean = self._sum / self.count if self.count else math.nan
        return Estimate(*(self.least + value * (self.most - self.least) for value in (mean, *self._bounds())))

    def _bounds(self) -> tuple[float, float]:
        """Return the interval between 0 and 1: the neighbours of the candidates left, within what is still possible."""
        if not self.count:
            return 0.0, 1.0
        mean, step = self._sum / self.count, 1 / (CANDIDATES - 1)
        least, most = 0.0, 1.0
        if self.size is not None:
            least, most = self._sum / self.size, (self._sum + self.size - self.count) / self.size
        kept = self._scale(self.candidates) if len(self.candidates) else np.array([mean])
        return min(max(float(kept[0]) - step, least), mean), max(min(float(kept[-1]) + step, most), mean)

    def _scale(self, values: Array) -> Array:
        return (values - self.least) / (self.most - self.least)

    def _bet(self, values: Array) -> None:
        numbers = self.count + np.arange(1.0, len(values) + 1)
        sums = self._sum + np.concatenate([[0.0], np.cumsum(values)])
        candidates = self._scale(self.candidates)
        expected: Array = np.broadcast_to(candidates, (len(values), len(candidates)))
        if self.size is not None:  # the mean of those that have not been drawn
            expected = (self.size * candidates - sums[:-1, None]) / (self.size - numbers[:, None] + 1)
        possible = ((expected > -_NEVER) & (expected < 1 + _NEVER)).all(0)
        mean = np.clip(expected, _NEVER, 1 - _NEVER)
        stakes = (self._distances[:, None] / self._variances(values, numbers, sums))[:, :, None]
        surprise = values[:, None] - mean
        more = np.log1p(np.minimum(stakes, _MOST_STAKED / mean) * surprise)
        less = np.log1p(-np.minimum(stakes, _MOST_STAKED / (1 - mean)) * surprise)
        gains = self._gains[:, :, None] + np.cumsum(np.stack([more, less]), axis=2)
        kept = possible & (_pool(gains) < math.log(2 / self.alpha)).all((0, 1))
        self.candidates, self._gains = self.candidates[kept], gains[:, :, -1, kept]
        self.count, self._sum = int(numbers[-1]), float(sums[-1])

    def _variances(self, values: Array, numbers: Array, sums: Array) -> Array:
        """Return the variance that is expected of each value, from those before it."""
        means = (0.5 + sums[1:]) / (numbers + 1)  # as if one value of 0.5 had come first
        spreads = self._spread + np.concatenate([[0.0], np.cumsum((values - means) ** 2)])
        self._spread = float(spreads[-1])
        variances: Array = (0.25 + spreads[:-1]) / numbers
        return variances


def _distances_from(least: float) -> Array:
    """Return the distances that bets are made for: the least that matters, and its doubles."""
    distances: Array = least * 2.0 ** np.arange(1.0 + max(0, math.floor(math.log2(0.5 / least))))
    return distances


def _pool(gains: Array) -> Array:
    """Return the logarithm of the capital over all distances: half of it is for the least, the rest is divided evenly."""
    others = gains.shape[1] - 1
    weights = np.log([0.5, *[0.5 / others] * others] if others else [1.0])
    pooled: Array = np.logaddexp.reduce(gains + weights[:, None, None], axis=1)
    return pooled
