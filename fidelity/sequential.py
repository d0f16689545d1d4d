"""How often sequential gates decide wrongly, and how many images they need: `python -m fidelity.sequential`.

    python -m fidelity.sequential                 simulate, and write the page
    python -m fidelity.sequential --values RUN    take the values of real models from a profile run first
    python -m fidelity.sequential --page          write the page from stored results

Results are kept in results/sequential.json, the values of real models in results/sequential_values.json. The page is
docs/fidelity-gates.md.
"""

from __future__ import annotations

import argparse
import base64
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from numpy.typing import NDArray

import brinell
from brinell.comparison.sequential import MARGIN
from brinell.runs.sequences import ConfidenceSequence
from fidelity.words import grid

HERE = Path(__file__).parent
RESULTS, VALUES = (HERE / "results" / name for name in ("sequential.json", "sequential_values.json"))
PAGE = HERE.parent / "docs" / "fidelity-gates.md"
Array = NDArray[np.float64]
Generator = np.random.Generator

SIMULATIONS = 2000
ALPHA = 0.05
BLOCK = 50  # images between two looks
DROP = 1.0  # percentage points that the rule allows
SIZES = (300, 2000, 10_000)
# gain of the new model in points: at the limit, which must not fail; and a margin beyond it, which must not pass
GAINS = (0.0, -DROP, -DROP - MARGIN, -5.0, -10.0)
LEVELS, CELLS = 30, 0.1  # of the profile lens, and the share of them that is queried
DIFFERING = 0.15  # share of images on which the two models differ, without the gain


@dataclass(frozen=True)
class Outcome:
    """What came out of many sequential gates: shares of them that failed and passed, and the mean share of images used."""

    pair: str
    images: int
    gain: float
    failed: float
    passed: float
    used: float


def decide(gains: Array, total: int, alpha: float) -> tuple[str, int]:
    """Return how a rule about a drop is decided, and after how many images; "open" if all of them don't decide it."""
    limits = np.array([-DROP - MARGIN, -DROP]) / 100
    sequence = ConfidenceSequence(MARGIN / 100, size=total, least=-1, alpha=alpha, candidates=limits)
    for start in range(0, len(gains), BLOCK):
        sequence.add(gains[start : start + BLOCK])
        kept = sequence.candidates
        mean = sequence.estimate.value
        worse, fine = limits[1] not in kept and mean < limits[1], limits[0] not in kept and mean > limits[0]
        if worse or fine:
            passed = mean > limits.mean() if worse and fine else fine
            return "passed" if passed else "failed", sequence.count
    return "open", len(gains)


def simulate(generator: Generator, simulations: int) -> Iterator[Outcome]:
    """Yield outcomes for areas of simulated pairs, by their gain and the number of images."""
    for total in SIZES:
        for gain in GAINS:
            trials = (_population(generator, total, gain / 100) for _ in range(simulations))
            yield _summarise("", total, gain, [decide(values, total, ALPHA) for values in trials])


def _population(generator: Generator, total: int, gain: float) -> Array:
    """Return gains of mean area by image: most are 0, the others are shares of levels; their mean is the gain exactly."""
    sizes = generator.uniform(0, 1, total) * generator.choice([-1, 1], total)
    values = np.where(generator.random(total) < DIFFERING + 2 * abs(gain), sizes, 0.0)
    moved = np.flatnonzero(values)
    for _ in range(50):  # clipping moves the mean, so shift again
        values[moved] = np.clip(values[moved] + (gain - values.mean()) * total / len(moved), -1, 1)
    return values


def resample_real(generator: Generator, simulations: int) -> Iterator[Outcome]:
    """Yield outcomes for real pairs of models at a tenth of the levels: in random orders, and with random signs."""
    answers = {model: _unpack(packed) for model, packed in json.loads(VALUES.read_text(encoding="utf-8"))["right"].items()}
    for old, new in combinations(answers, 2):
        gains = answers[new] - answers[old]
        for pair, values in ((f"{new} against {old}", gains), (f"{old} against {new}", -gains)):
            trials = (generator.permutation(_sample_levels(generator, values)) for _ in range(simulations))
            found = [decide(trial, len(values), ALPHA) for trial in trials]
            yield _summarise(pair, len(values), 100 * float(values.mean()), found)
        found = [decide(_as_allowed(generator, gains), len(gains), ALPHA) for _ in range(simulations)]
        yield _summarise(f"{new} and {old}, random signs", len(gains), -DROP, found)


def _sample_levels(generator: Generator, values: Array) -> Array:
    """Return the mean over operators and a systematic sample of levels of each image, from (images, operators, levels)."""
    images, operators, levels = values.shape
    step = round(1 / CELLS)
    first = generator.integers(0, step, (images, operators, 1))
    chosen = np.take_along_axis(values, first + np.arange(0, levels, step), axis=2)
    means: Array = chosen.mean((1, 2))
    return means


def _as_allowed(generator: Generator, gains: Array) -> Array:
    """Return real gains with random signs, shifted so that the models differ by exactly what the rule allows."""
    signs = generator.choice([-1.0, 1.0], len(gains))
    shift = -DROP / 100 - float((signs * gains.mean((1, 2))).mean())
    return np.clip(signs * _sample_levels(generator, gains) + shift, -1, 1)


def _unpack(packed: str) -> Array:
    """Return whether each image was right under each operator at each level (images, operators, levels)."""
    bits = np.unpackbits(np.frombuffer(base64.b64decode(packed), dtype=np.uint8))
    images = 300
    return bits[: len(bits) // (images * LEVELS) * images * LEVELS].reshape(images, -1, LEVELS).astype(np.float64)


def _summarise(pair: str, images: int, gain: float, found: list[tuple[str, int]]) -> Outcome:
    states = [state for state, _ in found]
    used = float(np.mean([count for _, count in found])) / images
    return Outcome(pair, images, gain, states.count("failed") / len(found), states.count("passed") / len(found), used)


def read_values(folder: str) -> dict[str, Any]:
    """Return whether each model was right on each image under each operator at each level, as packed bits."""
    rows = brinell.Run(folder).rows(
        "select model, list(correct order by image, operator, level) from rows "
        "where level > 0 and operator not like 'gradient%' group by all order by all"
    )
    right = {model: base64.b64encode(np.packbits(np.array(bits))).decode() for model, bits in rows.fetchall()}
    return {"order": "image, operator, level", "right": right}


def render_page(stored: dict[str, Any]) -> str:
    """Return the page that stored outcomes make."""
    outcomes = [Outcome(**one) for one in stored["outcomes"]]
    simulated, real = ([one for one in outcomes if bool(one.pair) == named] for named in (False, True))
    most = max(one.images for one in simulated)
    page = {
        "simulations": stored["simulations"],
        "alpha": ALPHA,
        "drop": DROP,
        "margin": MARGIN,
        "block": BLOCK,
        "differing": DIFFERING,
        "simulated": grid(("images", *_HEADS), [(f"{one.images:,}", *_cells(one)) for one in simulated]),
        "real": grid(("models", *_HEADS), [(one.pair, *_cells(one)) for one in real]),
        "alarms": max(one.failed for one in outcomes if one.gain >= -DROP),
        "misses": max(one.passed for one in outcomes if one.gain <= -DROP - MARGIN),
        "most": most,
        "cells": CELLS,
        "real_least": min(one.used for one in real),
        "real_most": max(one.used for one in real),
        "same": next(one.used for one in simulated if one.images == most and one.gain == 0),
    }
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    return template.from_string((HERE / "sequential.md.j2").read_text(encoding="utf-8")).render(page) + "\n"


_HEADS = ("gain of the new model, points", "failed", "passed", "images used")


def _cells(outcome: Outcome) -> list[str]:
    shares = (f"{100 * share:.1f} %" for share in (outcome.failed, outcome.passed))
    return [f"{outcome.gain:+.1f}".replace("-", "−"), *shares, f"{100 * outcome.used:.0f} %"]


def main() -> None:
    """Simulate, store the outcomes and write the page."""
    parser = argparse.ArgumentParser(prog="python -m fidelity.sequential")
    parser.add_argument("--values", help="a finished profile run of several models")
    parser.add_argument("--page", action="store_true", help="write the page from stored results")
    given = parser.parse_args()
    if given.values:
        VALUES.write_text(json.dumps(read_values(given.values)) + "\n", encoding="utf-8")
    if not given.page:
        generator = np.random.default_rng(0)
        outcomes = [*simulate(generator, SIMULATIONS), *resample_real(generator, SIMULATIONS)]
        content = {"simulations": SIMULATIONS, "outcomes": [asdict(outcome) for outcome in outcomes]}
        RESULTS.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(render_page(json.loads(RESULTS.read_text(encoding="utf-8"))), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(HERE.parent)}")


if __name__ == "__main__":
    main()
