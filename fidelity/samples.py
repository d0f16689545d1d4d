"""How often intervals under a budget contain the truth: in simulations, and on samples of real full runs.

A population says what images answer in every cell of their grids. Samples of its images are drawn with replacement, their
cells are chosen by the code that chooses them in a run, and figures are computed by the code that reports them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from brinell.comparison.paired import mean_effects
from brinell.lenses.fragility.lattice import pattern_of
from brinell.lenses.profile.sampled import estimates
from brinell.lenses.profile.smoothing import choose_bandwidth, smooth
from brinell.lenses.sampling import Sampling, count_images
from brinell.runs.statistics import Estimate, first_below, mean, ratio, sampled_ratio

Array = NDArray[np.float64]
Generator = np.random.Generator
Draw = Callable[[Generator, int], Array]  # answers (images, cells), or values (images,)
BUDGETS = (1.0, 0.3, 0.1)
THRESHOLD = 0.5
AT_ONCE = 100_000  # images that are drawn together
POOL = 50_000  # images whose cells are chosen once
LATER = 2  # levels by which the other model breaks later


@dataclass(frozen=True)
class SampleCoverage:
    """How often a figure's interval contains the truth, and its mean width; `source` is simulated, or a real run."""

    figure: str
    source: str
    where: str
    images: int
    share: float
    covered: float
    width: float


@dataclass(frozen=True)
class Population:
    """Images: how to draw their answers, and what is true of all of them, by cell or as one number."""

    source: str
    where: str
    draw: Draw
    truth: Any


@dataclass(frozen=True)
class Samples:
    """Answers of several samples (S, images, cells), and the weights of the cells that were queried, 0 elsewhere."""

    answers: Array
    weights: Array
    truth: Any


Bounds = tuple[Any, Any, Any]  # low, high and truth of each sample
Figures = dict[str, Bounds]


def take_samples(population: Population, generator: Generator, size: tuple[int, int], share: float, first: int) -> Samples:
    """Return samples (their number and images); cells before the `first` are always queried, as clean images are."""
    many, images = size
    answers = population.draw(generator, many * images)
    weights = np.ones_like(answers)
    weights[:, first:] = draw_weights(generator, len(answers), answers.shape[1] - first, share)
    return Samples(answers.reshape(many, images, -1), weights.reshape(many, images, -1), population.truth)


def draw_weights(generator: Generator, images: int, cells: int, share: float) -> Array:
    """Return the weights (images, cells) of a sample of cells."""
    known = _weights(cells, share)
    return known[generator.integers(0, len(known), images)]


@lru_cache(8)
def _weights(cells: int, share: float) -> Array:
    """Return the weights of the cells of many images, as a run chooses them."""
    chosen = Sampling(0, share).choose("operator", torch.arange(POOL) * 7919 + 13, cells)
    weights: Array = (chosen.cells / chosen.inclusion.clamp(min=1e-9)[:, None]).numpy()
    return weights


# ---- figures ----


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
    """Return accuracy at every level, and the first level below one half: both smoothed, without the clean image."""
    found = take_samples(population, generator, size, share, 1)
    truth, never = np.asarray(population.truth)[1:], len(population.truth)
    true = first_below(truth.tolist(), THRESHOLD)
    curves, points = [], []
    for answers, weights in zip(found.answers[:, :, 1:], found.weights[:, :, 1:], strict=True):
        levels = estimates(smooth(answers, weights, choose_bandwidth(answers, weights)), 1)
        low, high = (np.array([getattr(each, bound) for each in levels]) for bound in ("low", "high"))
        curves.append((low, high, truth))
        ends = (first_below(low.tolist(), THRESHOLD), first_below(high.tolist(), THRESHOLD), true)
        points.append([never if level is None else level for level in ends])
    low, high, level = np.array(points, dtype=np.float64).T
    return {
        "accuracy at a level, smoothed": tuple(np.concatenate(each) for each in zip(*curves, strict=True)),
        "failure point, smoothed (width in levels)": (low, high, level),
    }  # type: ignore[dict-item]


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
    reported = ratio if share == 1 else sampled_ratio
    shares = [reported(*map(float, row), size[1]) for row in zip(*(each.sum(1) for each in sums), strict=True)]
    whole, part = population.truth
    return {
        "share of spots or motions that break": _means(own, whole),
        "share of failing spots in a part of the image": _bounds(shares, part),
    }


def measure_windows(population: Population, generator: Generator, size: tuple[int, int], share: float) -> Figures:
    """Return the share of windows that flip; the windows of an image (tops x lefts) are judged on a random lattice."""
    whole, shape = population.truth
    flips = population.draw(generator, size[0] * size[1])
    if share < 1:
        pattern = pattern_of(shape, 1)
        counts = np.array([pattern.count(share, draw) for draw in generator.random(len(flips))])
        first, places = int(counts.min()), np.arange(flips.shape[1]).reshape(shape)
        masks = np.stack([(pattern.complete <= count).ravel() for count in range(first, int(counts.max()) + 1)])
        down, across = (generator.integers(0, side, len(flips)) for side in shape)
        rows, columns = np.divmod(places.ravel(), shape[1])
        shifted = (rows - down[:, None]) % shape[0] * shape[1] + (columns - across[:, None]) % shape[1]
        flips = np.where(np.take_along_axis(masks[counts - first], shifted, 1), flips, np.nan)
    with np.errstate(invalid="ignore"):
        own = np.nansum(flips, 1) / (~np.isnan(flips)).sum(1)
    return {"share of windows that flip": _means(own.reshape(size), whole)}


def measure_searches(population: Population, generator: Generator, size: tuple[int, int], share: float) -> Figures:
    """Return a mean over images whose searches can't be divided: over fewer images."""
    many, images = size[0], count_images(share, size[1])
    return {
        "mean over searched images": _means(
            population.draw(generator, many * images).reshape(many, images), population.truth
        )
    }


def _means(values: Array, truth: float) -> Bounds:
    """Return the intervals of the means of rows."""
    with np.errstate(invalid="ignore"):
        count = (~np.isnan(values)).sum(1)
        value = np.nanmean(values, 1)
        deviation = np.sqrt(np.nansum((values - value[:, None]) ** 2, 1) / np.maximum(1, count - 1))
    rows = zip(value.tolist(), deviation.tolist(), count.tolist(), strict=True)
    return _bounds([mean(v, d if n > 1 else None, n, most=1) for v, d, n in rows], truth)


def _bounds(found: list[Estimate], truth: float) -> Bounds:
    low, high = (np.array([getattr(each, bound) for each in found]) for bound in ("low", "high"))
    return low, high, np.full(len(found), truth)


# ---- coverage ----


def cover(
    measure: Callable[..., Figures], population: Population, images: int, share: float, simulations: int
) -> Iterator[SampleCoverage]:
    """Yield how often intervals contain the truth, figure by figure."""
    generator = np.random.default_rng(images)
    parts: dict[str, list[Bounds]] = {}
    left = simulations
    while left > 0:
        many = min(left, max(1, AT_ONCE // images))
        for figure, bounds in measure(population, generator, (many, images), share).items():
            parts.setdefault(figure, []).append(bounds)
        left -= many
    for figure, found in parts.items():
        low, high, truth = (np.concatenate(each) for each in zip(*found, strict=True))
        known = ~np.isnan(low)
        covered, width = ((low <= truth) & (truth <= high))[known].mean(), (high - low)[known].mean()
        yield SampleCoverage(figure, population.source, population.where, images, share, float(covered), float(width))


def cover_all(
    measured: Sequence[tuple[Callable[..., Figures], Population]],
    counts: Sequence[int],
    shares: Sequence[float],
    file: Path,
    simulations: int,
) -> None:
    """Store the coverage of all populations in a file; what it holds already is not measured again.

    A cell depends on its own number of images and its share alone, so that a file can be completed in several goes.
    """
    found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    known = {(row["of"], row["source"], row["where"], row["images"], row["share"]) for row in found}
    for measure, population in measured:
        for images in counts:
            for share in shares:
                cell = (measure.__name__, population.source, population.where, images, share)
                if cell not in known and not (measure is measure_curves and share == 1):  # full runs are not smoothed
                    rows = cover(measure, population, images, share, simulations)
                    found += [{"of": measure.__name__, **vars(row)} for row in rows]
                    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
                    print(*cell, flush=True)


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
