"""Profiles of a sampled run: each level's figures are smoothed over levels, with intervals over images."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from brinell.lenses.profile.smoothing import Smoothed, choose_bandwidth, mean_curve, smooth
from brinell.runs.run import Run
from brinell.runs.statistics import Estimate, effective_mean
from brinell.runs.weights import WEIGHT

Array = NDArray[np.float64]
STRONGEST = 30  # the highest level of most operators
Key = tuple[str, str]  # model and operator
# of each answer to a changed image: where it belongs, and its metrics
_ANSWERS = f"""
    select model, operator, dense_rank() over (order by image) - 1 as place, level, {WEIGHT} as weight,
           correct::double as accuracy, rank::double as rank, probability::double as probability,
           confidence::double as confidence
    from rows where lens = 'profile' and level > 0
"""
_LOOKS = """
    select model, operator, level, count(*), avg(amount), avg(changed), avg(grey), avg(colours)
    from rows where lens = 'profile' group by all order by all
"""


@dataclass(frozen=True)
class Looks:
    """What images look like at every level from 0 on: number of images, amount, changed, mean grey and colours."""

    images: list[int]
    values: list[tuple[float, float, float | None, float | None]]


def count_levels(run: Run, operator: str) -> int:
    """Return the number of levels that a full run has of an operator."""
    most: int = run.facts(operator).get("levels", STRONGEST)
    return min(int(run.lens("profile")["levels"]), most)


def smooth_curves(run: Run, metrics: tuple[str, ...]) -> dict[Key, dict[str, Smoothed]]:
    """Return the smoothed curves of every model and operator by metric, from level 1 on."""
    answers = run.connection.execute(_ANSWERS).fetchnumpy()
    images = int(answers["place"].max()) + 1 if len(answers["place"]) else 0
    names = np.array(
        [f"{model}\n{operator}" for model, operator in zip(answers["model"], answers["operator"], strict=True)]
    )
    found: dict[Key, dict[str, Smoothed]] = {}
    for name in dict.fromkeys(sorted(names.tolist())):
        own = names == name
        cells = answers["place"][own], answers["level"][own] - 1
        model, operator = name.split("\n")
        weights = np.zeros((images, count_levels(run, operator)))
        weights[cells] = answers["weight"][own]
        tables = {metric: _fill(answers[metric], own, cells, weights.shape) for metric in metrics}
        bandwidth = choose_bandwidth(tables["accuracy"], weights)
        found[model, operator] = {metric: smooth(table, weights, bandwidth) for metric, table in tables.items()}
    return found


def _fill(values: Any, own: NDArray[np.bool_], cells: tuple[Any, Any], shape: tuple[int, int]) -> Array:
    table = np.zeros(shape)
    table[cells] = np.ma.filled(values[own], math.nan)
    return table


def estimates(curve: Smoothed, most: float) -> list[Estimate]:
    """Return a curve's values with intervals; values are in [0, most]."""
    bounded = np.clip(curve.value, 0, most)
    return [
        effective_mean(float(value), float(variance), float(images), most)
        for value, variance, images in zip(bounded, curve.variance, curve.images, strict=True)
    ]


def average_curves(curves: dict[Key, dict[str, Smoothed]], model: str, operators: list[str], metric: str) -> Smoothed:
    """Return the mean of a model's curves over operators."""
    return mean_curve([curves[model, operator][metric] for operator in operators])


def read_looks(run: Run) -> dict[Key, Looks]:
    """Return what images look like at every level; levels without answers lie between their neighbours."""
    found: dict[Key, dict[int, tuple[Any, ...]]] = {}
    for model, operator, level, *rest in run.query(_LOOKS):
        found.setdefault((model, operator), {})[level] = tuple(rest)
    looks = {}
    for key, own in found.items():
        known, levels, columns = sorted(own), count_levels(run, key[1]), []
        for column in range(1, 5):
            given = [own[level][column] for level in known]
            filled = None if given[0] is None else np.interp(range(levels + 1), known, given).tolist()
            columns.append(filled or [None] * (levels + 1))
        counts = [own[level][0] if level in own else 0 for level in range(levels + 1)]
        looks[key] = Looks(counts, list(zip(*columns, strict=True)))
    return looks
