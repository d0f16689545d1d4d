"""How often intervals under a budget contain the truth: in simulations, and on samples of real full runs.

A population says what images answer in every cell of their grids. Samples of its images are drawn with replacement, their
cells are chosen by the code that chooses them in a run, and figures (sample_figures.py) are computed by the code that
reports them.
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

from brinell.lenses.sampling import Sampling

Array = NDArray[np.float64]
Generator = np.random.Generator
Draw = Callable[[Generator, int], Array]  # answers (images, cells), or values (images,)
BUDGETS = (1.0, 0.3, 0.1)
AT_ONCE = 100_000  # images that are drawn together
POOL = 50_000  # images whose cells are chosen once


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
                if cell not in known:
                    rows = cover(measure, population, images, share, simulations)
                    found += [{"of": measure.__name__, **vars(row)} for row in rows]
                    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
                    print(*cell, flush=True)
