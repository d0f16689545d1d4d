"""Two models on the same images: paired tests with intervals, pure functions of numbers.

Values are float64 (images, columns), NaN where an image has none; a column is one figure, such as an operator's area.
Resampling is over images, the same ones for all columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Tensor

from brinell.draws import Draws, key
from brinell.runs.statistics import CONFIDENCE

Array = NDArray[np.float64]
RESAMPLES = 10_000
FEWEST = 10  # images with a value in both, for the mean of fewer a bootstrap says little
_AT_ONCE = 4_000_000  # draws: chunks of whole resamples


@dataclass(frozen=True)
class Effects:
    """For each column the effect, its 95 % interval and the two-sided p that there is none."""

    value: Array
    low: Array
    high: Array
    p: Array


# ---- shares ----


def mcnemar(lost: Array, gained: Array) -> Array:
    """The exact two-sided p of McNemar's test, from the numbers of images that changed either way."""
    tail = special.bdtr(np.minimum(lost, gained), (lost + gained).astype(np.int64), 0.5)
    p: Array = np.minimum(1.0, 2 * tail)
    return p


def share_effects(old: Array, new: Array) -> Effects:
    """The change of shares, of values that are 0 or 1: McNemar's test and the interval of Bonett and Price (2012).

    Their interval is Wald's with one more image changed either way, so that it is right for few changes, and no change at
    all is not certain.
    """
    known = ~np.isnan(old) & ~np.isnan(new)
    lost, gained = ((known & (one > other)).sum(0).astype(np.float64) for one, other in ((old, new), (new, old)))
    count = known.sum(0).astype(np.float64)
    centre = (gained - lost) / (count + 2)
    spread = (gained + lost + 2) / (count + 2) - centre**2
    half = special.ndtri((1 + CONFIDENCE) / 2) * np.sqrt(spread / (count + 2))
    with np.errstate(invalid="ignore"):
        value = (gained - lost) / count
    none = count == 0
    low, high = np.maximum(-1, centre - half), np.minimum(1, centre + half)
    return Effects(value, *(np.where(none, np.nan, each) for each in (low, high, mcnemar(lost, gained))))


# ---- means ----

Sums = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]  # of 1, a, b, a², ab, b² over images with both a and b


def mean_effects(old: Array, new: Array, *, seed: int = 0, resamples: int = RESAMPLES) -> Effects:
    """The change of means, by a paired bootstrap."""
    return _bootstrap(old, new, _difference, new - old, seed, resamples)


def ratio_effects(old: Array, new: Array, *, seed: int = 0, resamples: int = RESAMPLES) -> Effects:
    """The relative change of means (0.1: a tenth more), by a paired bootstrap of the ratio's logarithm."""
    known = ~np.isnan(old) & ~np.isnan(new)
    with np.errstate(divide="ignore", invalid="ignore"):
        means = (np.where(known, each, 0).sum(0) / known.sum(0) for each in (old, new))
        before, after = means
        found = _bootstrap(old, new, _log_ratio, new / after - old / before, seed, resamples)
    return Effects(np.expm1(found.value), np.expm1(found.low), np.expm1(found.high), found.p)


def _difference(sums: Sums) -> tuple[Tensor, Tensor]:
    """The difference of means, and the variance of what an image adds to it."""
    count, a, b, aa, ab, bb = sums
    value = (b - a) / count
    return value, ((bb - 2 * ab + aa) / count - value**2).clamp(min=0)


def _log_ratio(sums: Sums) -> tuple[Tensor, Tensor]:
    """The logarithm of the ratio of means, and the variance of what an image adds to it."""
    count, a, b, aa, ab, bb = sums
    spread = count * (bb / b**2 - 2 * ab / (a * b) + aa / a**2)
    return (b / a).log(), spread.clamp(min=0)


def _bootstrap(
    old: Array, new: Array, effect: Callable[[Sums], tuple[Tensor, Tensor]], each: Array, seed: int, resamples: int
) -> Effects:
    """The symmetric bootstrap-t (Hall 1988) of an effect; `each` is what each image adds to it.

    As in Bonett and Price's interval the error counts two more images, one either way as far as the farthest: with few
    images that differ, resamples without any of them would have no error at all.
    """
    known = torch.from_numpy(~np.isnan(old) & ~np.isnan(new))
    a, b = (torch.where(known, torch.from_numpy(values), 0.0) for values in (old, new))
    columns = torch.stack([known.to(torch.float64), a, b, a * a, a * b, b * b], 1)  # (N, 6, K)
    reach = torch.where(known, torch.from_numpy(each), 0.0).abs().amax(0)

    def studied(sums: Tensor) -> tuple[Tensor, Tensor]:
        value, variance = effect(tuple(sums.unbind(-2)))  # type: ignore[arg-type]
        count = sums[..., 0, :]
        return value, ((variance + 2 * reach**2 / count) / count).sqrt()

    value, error = studied(columns.sum(0))
    found, errors = studied(resampled_sums(columns, seed, resamples))
    away = ((found - value) / errors).abs().nan_to_num(math.inf, math.inf)
    away[:, error == 0] = 0  # no image differs, in any resample
    here = torch.where(error > 0, (value / error).abs(), 0.0)
    place = min(resamples, math.ceil(CONFIDENCE * (resamples + 1)))
    half = torch.where(error > 0, away.kthvalue(place, 0).values * error, 0.0)
    p = ((away >= here * (1 - 1e-9)).sum(0) + 1) / (resamples + 1)
    few = known.sum(0) < FEWEST
    low, high, p = (torch.where(few, math.nan, one) for one in (value - half, value + half, p))
    return Effects(*(one.numpy() for one in (value, low, high, p)))


def resampled_sums(columns: Tensor, seed: int, resamples: int = RESAMPLES) -> Tensor:
    """Sums over images drawn with replacement: columns (N, …) give (resamples, …)."""
    count = len(columns)
    flat = columns.reshape(count, -1).to(torch.float64)
    size = max(1, _AT_ONCE // max(1, count))
    sums = []
    for start in range(0, resamples, size):
        numbers = torch.arange(start, min(start + size, resamples))
        picks = Draws.of(key("bootstrap", seed), numbers).below(0, count, count)
        times = torch.zeros(len(numbers), count, dtype=torch.float64)
        times.scatter_add_(1, picks, torch.ones(1, dtype=torch.float64).expand_as(picks))
        sums.append(times @ flat)
    return torch.cat(sums).reshape(resamples, *columns.shape[1:])


# ---- many at once ----


def holm(p: Array) -> Array:
    """Adjusted for as many tests as there are (Holm 1979); those that could not be made are none."""
    adjusted = np.full_like(p, np.nan)
    made = np.flatnonzero(~np.isnan(p))
    order = made[np.argsort(p[made], kind="stable")]
    steps = np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)) if len(order) else p[order]
    adjusted[order] = np.minimum(1.0, steps)
    return adjusted
