"""How often the 95 % intervals contain the truth: `python -m fidelity.coverage` writes docs/statistics.md.

Samples are drawn from distributions whose mean is known, near the floor, in the middle and near the ceiling. Every figure
that brinell reports with an interval is computed from them by the code that reports it.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from numpy.typing import NDArray

from brinell.comparison.paired import mean_effects, ratio_effects, share_effects
from brinell.comparison.ranks import mean_over_operators
from brinell.runs.statistics import Estimate, first_below, mean, proportion, ratio
from fidelity.sample_figures import measure_curves, simulate
from fidelity.sample_page import SAMPLES, sample_tables
from fidelity.samples import BUDGETS, cover_all
from fidelity.words import grid

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "coverage.json"
PAGE = HERE.parent / "docs" / "statistics.md"
Array = NDArray[np.float64]
Generator = np.random.Generator

COUNTS = (10, 24, 100, 1000)
SIMULATIONS = 2000
LEVELS = 30
THRESHOLD = 0.5
# the level at which an image breaks: logistic, by its median and scale
BREAKS = {"floor": (-2.0, 2.0), "middle": (15.0, 4.0), "ceiling": (34.0, 3.0)}
SHARES = {"floor": 0.03, "middle": 0.5, "ceiling": 0.97}
DISTANCES: dict[str, Callable[[Generator, tuple[int, ...]], Array]] = {
    "exponential": lambda generator, size: generator.exponential(1, size),
    "log-normal, σ = 0.7": lambda generator, size: generator.lognormal(0, 0.7, size),
    "log-normal, σ = 1": lambda generator, size: generator.lognormal(0, 1, size),
}
WRONG = 0.01
SHARED = 0.05
GAINS = {"1 %": (0.01, 0.0), "5 % and 1 %": (0.05, 0.01), "30 % and 5 %": (0.3, 0.05)}


@dataclass(frozen=True)
class Coverage:
    """How often a figure's interval contains the truth, and its mean width."""

    figure: str
    where: str
    images: int
    covered: float
    width: float


def measure(simulations: int = SIMULATIONS) -> Iterator[Coverage]:
    """Yield the coverage of every figure, by where it lies and by the number of images."""
    for images in COUNTS:
        print(images, "images", flush=True)
        generator = np.random.default_rng(images)
        size = (simulations, images)
        for where, share in SHARES.items():
            right = (generator.random(size) < share).sum(1)
            yield _summarise("accuracy at one level", where, images, share, [proportion(int(k), images) for k in right])
        for where, (middle, scale) in BREAKS.items():
            areas = _areas(generator, size, middle, scale)
            truth = float(_areas(generator, (2_000_000,), middle, scale).mean())
            yield _summarise("mean accuracy (area)", where, images, truth, _means(areas, 1))
            board = mean_over_operators(np.stack([areas.T, _areas(generator, size, middle, scale).T], 1), most=1)
            yield _summarise("leaderboard, mean over operators", where, images, truth, board)
            yield _failure_point(generator, where, size, middle, scale)
            yield _ratio(generator, where, size, SHARES[where])
        yield _rare(generator, size)
        for where, draw in DISTANCES.items():
            truth = float(draw(generator, (4_000_000,)).mean())
            yield _summarise("mean distance", where, images, truth, _means(draw(generator, size), math.inf))
        yield from _pairs(generator, images, simulations)


def _areas(generator: Generator, size: tuple[int, ...], middle: float, scale: float) -> Array:
    areas: Array = np.clip(np.floor(generator.logistic(middle, scale, size)), 0, LEVELS) / LEVELS
    return areas


def _rare(generator: Generator, size: tuple[int, int]) -> Coverage:
    """Return the coverage of an area of nearly equal images, of which 1 % are wrong at all levels."""
    areas = np.where(generator.random(size) < WRONG, 0.0, generator.normal(0.9, 0.03, size).clip(0, 1))
    truth = (1 - WRONG) * float(generator.normal(0.9, 0.03, 2_000_000).clip(0, 1).mean())
    return _summarise("mean accuracy (area)", f"90 %, but {WRONG:.0%} always wrong", size[1], truth, _means(areas, 1))


def _means(samples: Array, most: float) -> list[Estimate]:
    """Return the interval of every row's mean."""
    found = zip(samples.mean(1), samples.std(1, ddof=1), strict=True)
    return [mean(float(value), float(deviation), samples.shape[1], most) for value, deviation in found]


def _ratio(generator: Generator, where: str, size: tuple[int, int], share: float) -> Coverage:
    """Return the coverage of a share over images of several windows each, whose answers are correlated."""
    windows = generator.integers(5, 40, size).astype(np.float64)
    own = generator.beta(2 * share, 2 * (1 - share), size)
    failing = generator.binomial(windows.astype(np.int64), own).astype(np.float64)
    sums = (failing.sum(1), windows.sum(1), (failing**2).sum(1), (failing * windows).sum(1), (windows**2).sum(1))
    found = [ratio(*map(float, row)) for row in zip(*sums, strict=True)]
    return _summarise("share of windows or spots", where, size[1], share, found)


def _failure_point(generator: Generator, where: str, size: tuple[int, int], middle: float, scale: float) -> Coverage:
    """Return how often the interval of the first level below a threshold contains the true level."""
    levels = np.arange(LEVELS + 1)
    truth = first_below((1 / (1 + np.exp((levels - middle) / scale))).tolist(), THRESHOLD)
    breaks = generator.logistic(middle, scale, size)
    right = (breaks[:, None, :] > levels[None, :, None]).sum(2) if size[1] < 1000 else _count(breaks, levels)
    covered, widths = [], []
    for row in right:
        found = [proportion(int(count), size[1]) for count in row]
        low, high = (first_below([getattr(each, bound) for each in found], THRESHOLD) for bound in ("low", "high"))
        last = LEVELS + 1
        first, latest, true = (last if level is None else level for level in (low, high, truth))
        covered.append(first <= true <= latest)
        widths.append((latest - first) / LEVELS)
    return Coverage("failure point", where, size[1], float(np.mean(covered)), float(np.mean(widths)))


def _count(breaks: Array, levels: NDArray[np.int64]) -> Any:
    return np.stack([(breaks > level).sum(1) for level in levels], 1)


def _pairs(generator: Generator, images: int, simulations: int) -> Iterator[Coverage]:
    """Yield the coverage of changes between two models on the same images; each column is a simulation."""
    size = (images, simulations)
    resamples = 1000
    for where, (gains, losses) in GAINS.items():
        kind, amount = generator.random(size), generator.random(size)
        changed = np.where(kind < gains, 1.0, np.where(kind > 1 - losses, -1.0, 0.0))
        old = np.where(changed > 0, 0.0, 1.0)
        effects = share_effects(old, old + changed)
        yield _of_effects("change of accuracy", f"{where} change", images, gains - losses, effects)
        effects = mean_effects(np.zeros(size), changed * amount, resamples=resamples)
        yield _of_effects("change of a mean", f"{where} change", images, (gains - losses) / 2, effects)
    changed = np.where(generator.random(size) < SHARED, 0.0, 0.06)
    effects = mean_effects(np.zeros(size), changed, resamples=resamples)
    where = f"all but {SHARED:.0%} by the same amount"
    yield _of_effects("change of a mean", where, images, (1 - SHARED) * 0.06, effects)
    distances = generator.lognormal(0, 0.7, size)
    effects = ratio_effects(distances, 1.2 * distances * generator.lognormal(0, 0.3, size), resamples=resamples)
    yield _of_effects("relative change of a distance", "log-normal", images, 1.2 * math.exp(0.3**2 / 2) - 1, effects)


def _of_effects(figure: str, where: str, images: int, truth: float, effects: Any) -> Coverage:
    covered = (effects.low <= truth) & (truth <= effects.high)
    return Coverage(figure, where, images, float(covered.mean()), float(np.nanmean(effects.high - effects.low)))


def _summarise(figure: str, where: str, images: int, truth: float, found: list[Estimate]) -> Coverage:
    covered = np.mean([each.low <= truth <= each.high for each in found])
    return Coverage(figure, where, images, float(covered), float(np.mean([each.high - each.low for each in found])))


def page(found: list[Coverage]) -> str:
    """Return the page."""
    table: dict[tuple[str, str], dict[int, Coverage]] = {}
    for one in found:
        table.setdefault((one.figure, one.where), {})[one.images] = one
    rows = [
        [figure, where, *(f"{100 * by[images].covered:.1f} ({by[images].width:.3f})" for images in COUNTS)]
        for (figure, where), by in sorted(table.items())
    ]
    header = ["figure", "where", *(f"{images:,} images" for images in COUNTS)]
    lowest = {images: min(by[images].covered for by in table.values()) for images in COUNTS}
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined).from_string(
        (HERE / "statistics.md.j2").read_text(encoding="utf-8")
    )
    return template.render(table=grid(header, rows), lowest=lowest, simulations=SIMULATIONS, **sample_tables(COUNTS))


def main(arguments: list[str]) -> None:
    """Measure and write the page; `page` alone writes it from the stored results, `full` and `samples` measure a part.

    Coverage under a budget is measured where results/samples.json has none yet: remove the file to begin again.
    """
    if arguments in ([], ["samples"]):
        populations = sorted(simulate(BREAKS, SHARES, LEVELS), key=lambda one: one[0] is measure_curves)  # longest last
        cover_all(populations, COUNTS, BUDGETS[1:], SAMPLES, SIMULATIONS)
    if arguments in ([], ["full"]):
        RESULTS.write_text(json.dumps([vars(one) for one in measure()], indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page([Coverage(**one) for one in json.loads(RESULTS.read_text(encoding="utf-8"))]), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(HERE.parent)}")


if __name__ == "__main__":
    main(sys.argv[1:])
