"""A run's findings as named numbers: of the run as a whole, and of each lens, model and operator.

Names are paths: accuracy, accuracy_low and accuracy_high, at_least/5. What has levels has a number a level.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import duckdb
import numpy as np

from brinell.comparison.measures import image_values, measures_of
from brinell.lenses.analysis import Findings
from brinell.lenses.fragility.findings import Fragility
from brinell.lenses.geometry.findings import Motions
from brinell.lenses.highlights.findings import Highlights
from brinell.lenses.knob.findings import Knobs
from brinell.lenses.photographs.findings import Photographs
from brinell.lenses.profile.findings import Profiles
from brinell.runs.statistics import Estimate
from brinell.saliency.findings import Attention

MINIMAL = "minimal"


@dataclass(frozen=True, order=True)
class Part:
    """What one nested run is of."""

    lens: str
    model: str
    operator: str


@dataclass(frozen=True)
class Number:
    """A figure, at a level or the like where it has one."""

    name: str
    value: float
    step: int = 0


Told = tuple[str, str, int, Any]  # a model, an operator, a step, and figures as a dataclass or a mapping


def _of_profiles(found: Profiles) -> Iterator[Told]:
    for (model, operator), points in found.curves.items():
        yield model, operator, 0, {"area": found.areas[model, operator]}
        for point in points:
            yield model, operator, point.level, point
    for one in found.failures:
        yield one.model, one.operator, 0, {f"level_below_{one.threshold:g}": one.level}


def _of_fragility(found: Fragility) -> Iterator[Told]:
    for one in found.shares.values():
        yield one.model, one.operator, 0, {one.kind: {one.judged_by: one}}
    for model in dict.fromkeys(one.model for one in found.minimal):
        mine = [one for one in found.minimal if one.model == model]
        counts = {
            "images": len(mine),
            "minimal_images": sum(len(one.windows) for one in mine) / len(mine),
            "queries": sum(one.queries for one in mine) / len(mine),
            "complete": sum(one.complete for one in mine) / len(mine),
        }
        yield model, MINIMAL, 0, counts


def _of_highlights(found: Highlights) -> Iterator[Told]:
    for one in found.glare.values():
        yield one.model, one.operator, 0, one
        yield one.model, one.operator, 0, {"size": {size.sigma: size for size in one.sizes}}
    for least in found.least.values():
        yield least.model, "highlight:least", 0, least


def _of_motions(found: Motions) -> Iterator[Told]:
    for one in found.smallest.values():
        yield one.model, one.operator, 0, one
    for (model, operator), rates in found.rates.items():
        yield model, operator, 0, {"middle": found.middle(model, operator)}
        for step, rate in enumerate(rates, 1):
            yield model, operator, step, rate


FIGURES: dict[type[Findings], Callable[[Any], Iterable[Told]]] = {
    Profiles: _of_profiles,
    Knobs: lambda found: [(one.model, one.operator, 0, one) for one in found.hardness.values()],
    Fragility: _of_fragility,
    Highlights: _of_highlights,
    Photographs: lambda found: [(model, found.operators[0], 0, one) for model, one in found.scenes.items()],
    Motions: _of_motions,
}


def figures(found: Mapping[str, Findings]) -> dict[Part, list[Number]]:
    """By part all that is known of it. Where models look is told beside the figures of the lens that changed the images."""
    parts: dict[Part, list[Number]] = {}
    for lens, one in found.items():
        told = [] if isinstance(one, Attention) else FIGURES[type(one)](one)
        for model, operator, step, values in told:
            numbers = [Number(name, value, step) for name, value in flat(values)]
            parts.setdefault(Part(lens, model, operator), []).extend(numbers)
    for one in found.values():
        for move in one.moves if isinstance(one, Attention) else ():
            kind = f"attention/{'failing' if move.failed else 'control'}"
            numbers = [Number(name, value) for name, value in flat(move, kind) if name != f"{kind}/failed"]
            parts.setdefault(Part(move.lens, move.model, move.operator), []).extend(numbers)
    return parts


def summary(
    connection: duckdb.DuckDBPyConnection, found: Mapping[str, Findings], lenses: Mapping[str, Mapping[str, Any]]
) -> list[Number]:
    """Each model's figures as in a leaderboard, means over operators, and its mean profile; named by the model where
    there are several.
    """
    images = [image for (image,) in connection.execute("select image from samples where problem is null").fetchall()]
    models = [model for (model,) in connection.execute("select distinct model from clean order by 1").fetchall()]
    profile = found.get("profile")
    numbers = []
    for model in models:
        mine: list[Number] = []
        for measure in (one for one in measures_of(list(lenses)) if one.ranked):
            columns = image_values(connection, measure, lenses.get(measure.lens or "", {}), model, images)
            if measure.lens == "profile" and isinstance(profile, Profiles):  # attacks are no part of averages
                columns = {key: values for key, values in columns.items() if key[0] in profile.averaged_operators}
            means = [float(np.nanmean(values)) for values in columns.values() if not np.isnan(values).all()]
            if means:
                mine.append(Number(measure.name, sum(means) / len(means)))
        if isinstance(profile, Profiles):
            levels = enumerate(profile.averages.get(model, []))
            mine += [Number(name, value, step) for step, told in levels for name, value in flat(told)]
        several = f"{word(model)}/" if len(models) > 1 else ""
        numbers += [Number(several + one.name, one.value, one.step) for one in mine]
    return numbers


def flat(told: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """The numbers in dataclasses, mappings and lists, by their paths; what is no number, or not finite, is left out."""
    if isinstance(told, Estimate):
        for end, value in (("", told.value), ("_low", told.low), ("_high", told.high)):
            yield from flat(value, name + end)
    elif is_dataclass(told):
        yield from flat({field.name: getattr(told, field.name) for field in fields(told) if field.name != "level"}, name)
    elif isinstance(told, Mapping):
        for key, value in told.items():
            yield from flat(value, f"{name}/{word(key)}" if name else word(key))
    elif isinstance(told, list) and not any(map(is_dataclass, told)):
        yield from flat(dict(enumerate(told)), name)
    elif isinstance(told, (int, float)) and math.isfinite(told):
        yield name, float(told)


def word(key: Any) -> str:
    """A key as a part of a path, in the letters that trackers take."""
    return re.sub(r"[^\w.:-]+", "_", str(key)).strip(".") or "_"
