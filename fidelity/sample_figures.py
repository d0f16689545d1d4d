"""Figures of samples under budgets, with their intervals: computed by the code that reports them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brinell.comparison.paired import mean_effects
from brinell.lenses.fragility.lattice import pattern_of
from brinell.lenses.profile.sampled import estimates
from brinell.lenses.profile.smoothing import choose_bandwidth, smooth
from brinell.lenses.sampling import count_images
from brinell.runs.statistics import Estimate, first_below, mean, proportion, ratio
from fidelity.samples import Array, Bounds, Figures, Generator, Population, draw_weights, take_samples

THRESHOLD = 0.5
LATER = 2  # levels by which the other model breaks later


def measure_areas(population: Population, generator: Generator, size: tuple[int, int], share: float) -> Figures:
    """Return areas, their mean over three operators, and their change to a model that breaks two levels later."""
    found = take_samples(population, generator, size, share, 1)
    own = (found.weights * found.answers).sum(2) / found.weights.sum(2)
    truth = float(np.mean(population.truth))
    average = own / 3
    for _ in range(2):
        weights = draw_weights(generator, size[0] * size[1], found.answers.shape[2] - 1, share).reshape(*size, -1)
        changed = (weights * found.answers[:, :, 1:]).sum(2)
        average = average + (found.answers[:, :, 0] + changed) / (1 + weights.sum(2)) / 3
    later, true = (_break_later(each) for each in (found.answers, np.asarray(population.truth)))
    other = (found.weights * later).sum(2) / found.weights.sum(2)
    effects = mean_effects(own.T, other.T, resamples=400)
    return {
        "mean accuracy (area)": _means(own, truth),
        "mean accuracy over three operators": _means(average, truth),
        "change of an area": (effects.low, effects.high, np.full(size[0], float(np.mean(true)) - truth)),
    }


def _break_later(answers: Array) -> Array:
    return np.concatenate([answers[..., :1]] * (1 + LATER) + [answers[..., 1:-LATER]], -1)


def measure_curves(population: Population, generator: Generator, size: tuple[int, int], share: float) -> Figures:
    """Return accuracy at every level, and the first level below one half: without the clean image, smoothed in samples."""
    found = take_samples(population, generator, size, share, 1)
    truth, never = np.asarray(population.truth)[1:], len(population.truth)
    true = first_below(truth.tolist(), THRESHOLD)
    curves, points = [], []
    for answers, weights in zip(found.answers[:, :, 1:], found.weights[:, :, 1:], strict=True):
        if share == 1:
            levels = [_proportion(int(right), size[1]) for right in answers.sum(0)]
        else:
            levels = estimates(smooth(answers, weights, choose_bandwidth(answers, weights)), 1)
        low, high = (np.array([getattr(each, bound) for each in levels]) for bound in ("low", "high"))
        curves.append((low, high, truth))
        ends = (first_below(low.tolist(), THRESHOLD), first_below(high.tolist(), THRESHOLD), true)
        points.append([never if level is None else level for level in ends])
    low, high, level = np.array(points, dtype=np.float64).T
    accuracy = tuple(np.concatenate(each) for each in zip(*curves, strict=True))
    return {"accuracy at a level": accuracy, "failure point (width in levels)": (low, high, level)}  # type: ignore[dict-item]


_proportion = lru_cache(100_000)(proportion)


def measure_accuracy(population: Population, generator: Generator, size: tuple[int, int], share: float) -> Figures:
    """Return the accuracy over all of an image's spots, of images that are wrong when clean, too."""
    found = take_samples(population, generator, size, share, 0)
    own = (found.weights * found.answers).sum(2) / found.weights.sum(2)
    return {"accuracy under spots": _means(own, float(population.truth))}


def measure_spots(population: Population, generator: Generator, size: tuple[int, int], share: float) -> Figures:
    """Return the share of spots or motions that break, and the share of failing ones in a quarter of the grid."""
    found = take_samples(population, generator, size, share, 0)
    weights = found.weights * ~np.isnan(found.answers)
    broken = weights * np.nan_to_num(found.answers)
    with np.errstate(invalid="ignore"):
        own = broken.sum(2) / weights.sum(2)
    quarter = broken[:, :, : found.answers.shape[2] // 4].sum(2)
    every = broken.sum(2)
    sums = (quarter, every, quarter**2, quarter * every, every**2)
    shares = [ratio(*map(float, row)) for row in zip(*(each.sum(1) for each in sums), strict=True)]
    whole, part = population.truth
    return {
        "share of spots or motions that break": _means(own, whole),
        "share of failing spots in a part of the image": _bounds(shares, part),
    }


def measure_windows(population: Population, generator: Generator, size: tuple[int, int], share: float) -> Figures:
    """Return the share of windows that flip; images are drawn by number, and judged on a random lattice of their windows.

    The truth is the share of all windows, with which windows (images, tops, lefts) flip.
    """
    whole, flips = population.truth
    images = population.draw(generator, size[0] * size[1]).astype(np.int64)
    if share == 1:
        own = flips.mean((1, 2))[images]
    else:
        pattern = pattern_of(flips.shape[1:], 1)
        counts = np.array([pattern.count(share, draw) for draw in generator.random(len(images))])
        down, across = (generator.integers(0, side, len(images)) for side in flips.shape[1:])
        own = np.zeros(len(images))
        for count in np.unique(counts).tolist():
            now = counts == count
            own[now] = _lattice_shares(flips, pattern.complete <= count)[images[now], down[now], across[now]]
    return {"share of windows that flip": _means(own.reshape(size), whole)}


def _lattice_shares(flips: Array, lattice: NDArray[np.bool_]) -> Array:
    """Return the share of flips on a lattice of windows, for all images and offsets of the lattice, which wraps around."""
    if not lattice.any():
        return np.full_like(flips, np.nan)
    sums = np.fft.ifft2(np.fft.fft2(flips) * np.conj(np.fft.fft2(lattice))).real
    shares: Array = np.round(sums) / lattice.sum()
    return shares


def measure_searches(population: Population, generator: Generator, size: tuple[int, int], share: float) -> Figures:
    """Return a mean over images whose searches can't be divided: over fewer images."""
    many, images = size[0], count_images(share, size[1])
    return {
        "mean over searched images": _means(
            population.draw(generator, many * images).reshape(many, images), population.truth
        )
    }


def measure_distances(population: Population, generator: Generator, size: tuple[int, int], share: float) -> Figures:
    """Return what searches find, over fewer images: the mean hardness (survivors count with the most that was tried), the
    share of images that break, and the mean smallest change of those.

    Images are drawn as (hardness, change), without a change where they survive, and without a hardness in some lenses.
    """
    many, images = size[0], count_images(share, size[1])
    hardness, change = np.moveaxis(population.draw(generator, many * images).reshape(many, images, 2), 2, 0)
    whole, breaking, smallest = population.truth
    shares = [_proportion(int(broken), images) for broken in (~np.isnan(change)).sum(1)]
    found = {
        "share of images that break": _bounds(shares, breaking),
        "mean smallest change": _means(change, smallest, most=math.inf),
    }
    return found if math.isnan(whole) else found | {"mean over searched images": _means(hardness, whole)}


def _means(values: Array, truth: float, most: float = 1) -> Bounds:
    """Return the intervals of the means of rows."""
    with np.errstate(invalid="ignore"):
        count = (~np.isnan(values)).sum(1)
        value = np.nanmean(values, 1)
        deviation = np.sqrt(np.nansum((values - value[:, None]) ** 2, 1) / np.maximum(1, count - 1))
    rows = zip(value.tolist(), deviation.tolist(), count.tolist(), strict=True)
    return _bounds([mean(v, d if n > 1 else None, n, most=most) for v, d, n in rows], truth)


def _bounds(found: list[Estimate], truth: float) -> Bounds:
    low, high = (np.array([getattr(each, bound) for each in found]) for bound in ("low", "high"))
    return low, high, np.full(len(found), truth)


# ---- simulated populations ----


def simulate(breaks: dict[str, tuple[float, float]], shares: dict[str, float], levels: int) -> Iterator[Any]:
    """Yield simulated populations with what is measured: images that break at a level, and spots with their own rates."""
    places = np.arange(levels + 1)
    for where, (middle, scale) in breaks.items():

        def draw(generator: Generator, images: int, middle: float = middle, scale: float = scale) -> Array:
            return (generator.logistic(middle, scale, images)[:, None] > places).astype(np.float64)

        population = Population("simulated", where, draw, 1 / (1 + np.exp((places - middle) / scale)))
        yield measure_areas, population
        yield measure_curves, population
    for where, share in shares.items():

        def searched(generator: Generator, images: int, share: float = share) -> Array:
            found: Array = generator.beta(2 * share, 2 * (1 - share), images)
            return found

        def spots(generator: Generator, images: int, share: float = share) -> Array:
            own = generator.beta(2 * share, 2 * (1 - share), images)
            return (generator.random((images, 100)) < own[:, None]).astype(np.float64)

        yield measure_spots, Population("simulated", where, spots, (share, 0.25))
        yield measure_searches, Population("simulated", where, searched, share)
