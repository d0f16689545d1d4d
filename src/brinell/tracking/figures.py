"""A run's findings as named numbers: for the run as a whole, and for each lens, model and operator.

Names are paths such as accuracy, accuracy_low and accuracy_high, or at_least/5. What has levels has one number per level.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from brinell.comparison.measures import averaged_operators, image_values, measures_of
from brinell.comparison.resampling import Array
from brinell.lenses.reader import AVERAGE, Findings, Measure
from brinell.runs.run import Run
from brinell.runs.statistics import Estimate


@dataclass(frozen=True, order=True)
class Part:
    """What one nested run is about."""

    lens: str
    model: str
    operator: str


@dataclass(frozen=True)
class Number:
    """A figure, with a step such as a level."""

    name: str
    value: float
    step: int = 0


def collect_figures(findings: Mapping[str, Findings]) -> dict[Part, list[Number]]:
    """Return the figures of every lens, model and operator."""
    parts: dict[Part, list[Number]] = {}
    for lens, found in findings.items():
        for model, operator, step, values in found.figures():
            if operator != AVERAGE:
                numbers = [Number(name, value, step) for name, value in flatten(values)]
                parts.setdefault(Part(lens, model, operator), []).extend(numbers)
    return parts


def summarise(run: Run, findings: Mapping[str, Findings]) -> list[Number]:
    """Return each model's figures as in a leaderboard, means over operators, and the averages of its findings.

    Names start with the model's if there are several.
    """
    numbers: list[tuple[str, Number]] = []
    for measure in measures_of(run.lenses):
        if measure.ranked:
            numbers += [(model, Number(measure.name, value)) for model, value in _means(run, measure).items()]
    for found in findings.values():
        for model, operator, step, values in found.figures():
            if operator == AVERAGE:
                numbers += [(model, Number(name, value, step)) for name, value in flatten(values)]
    several = len(run.models) > 1
    return [Number(f"{to_word(model)}/{one.name}" if several else one.name, one.value, one.step) for model, one in numbers]


def _means(run: Run, measure: Measure) -> dict[str, float]:
    """Return a measure's mean over operators, by model.

    Where operators that need gradients don't count, only operators that all models have do.
    """
    images = list(run.image_names)
    values: dict[str, dict[str, Array]] = {}
    for model in run.models:
        columns = image_values(run, measure, model, images)
        own = {operator: column for (operator, _), column in columns.items() if not np.isnan(column).all()}
        if own:
            values[model] = own
    if values and not measure.with_white_box:
        common = [operator for operator in next(iter(values.values())) if all(operator in own for own in values.values())]
        counted = averaged_operators(measure, run, common) or common
        values = {model: {operator: own[operator] for operator in counted} for model, own in values.items()}
    means = {model: [float(np.nanmean(column)) for column in own.values()] for model, own in values.items()}
    return {model: sum(own) / len(own) for model, own in means.items() if own}


def flatten(values: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Yield the numbers in dataclasses, mappings and lists by their paths; skip everything else and what is not finite."""
    if isinstance(values, Estimate):
        for suffix, value in (("", values.value), ("_low", values.low), ("_high", values.high)):
            yield from flatten(value, name + suffix)
    elif is_dataclass(values):
        content = {field.name: getattr(values, field.name) for field in fields(values) if field.name != "level"}
        yield from flatten(content, name)
    elif isinstance(values, Mapping):
        for key, value in values.items():
            yield from flatten(value, f"{name}/{to_word(key)}" if name else to_word(key))
    elif isinstance(values, list) and not any(map(is_dataclass, values)):
        yield from flatten(dict(enumerate(values)), name)
    elif isinstance(values, (int, float)) and math.isfinite(values):
        yield name, float(values)


def to_word(key: Any) -> str:
    """Return a key as part of a path, in the characters that trackers accept."""
    return re.sub(r"[^\w.:-]+", "_", str(key)).strip(".") or "_"
