"""Smallest breaking changes from rows: how much of each property it takes to break a model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from brinell.runs.names import MEDIAN
from brinell.runs.ranking import Extremes, find_extremes
from brinell.runs.run import Run
from brinell.runs.statistics import Estimate, mean, proportion
from brinell.units import format_amount

CURVE_POINTS = 60
SURVIVED = 2**15  # greater than the index of any grid point
Key = tuple[str, str]  # model and operator


@dataclass(frozen=True)
class Hardness:
    """One model under one property. Counts are of images; `skipped` ones were wrong before anything was changed.

    `robustness` is the mean of the smallest breaking distances over the images that broke (the paper's R).
    `survived_share` and `fooled` are shares of the tested images: those that nothing broke, and those that broke below
    the property's common `threshold`. `median` is, for each direction, the amount at which half of the tested images are
    broken; None where more than half survive. `non_monotone` is the share of images that recover from a break as the
    change grows, where the whole grid was queried. `unit` is that of amounts.
    """

    model: str
    operator: str
    unit: str
    broken: int
    survived: int
    skipped: int
    failed: int
    robustness: Estimate
    survived_share: Estimate
    threshold: float
    fooled: Estimate
    median: dict[str, float | None]
    queries: float
    non_monotone: Estimate | None

    @property
    def tested(self) -> int:
        """Number of images that could break."""
        return self.broken + self.survived

    @property
    def half_broken_at(self) -> str:
        """The amount at which half of the images are broken, with its unit, for all directions."""
        if not self.tested:
            return "no image was tested"
        # a factor below 1 is no number of times darker
        suffix = "" if len(self.median) == 1 else " ({})" if self.unit == "×" else " {}"
        amounts = [
            format_amount(abs(amount), self.unit) + suffix.format(direction)
            for direction, amount in self.median.items()
            if amount is not None
        ]
        if not amounts:
            return "more than half survive"
        survived = [direction for direction, amount in self.median.items() if amount is None]
        return " or ".join(amounts) + "".join(f"; more than half survive {direction}" for direction in survived)


@dataclass(frozen=True)
class BreakingRange:
    """The amounts at which one direction of a property breaks a model: mean, and at the weakest and strongest change."""

    model: str
    operator: str
    direction: str
    images: int
    mean: Estimate
    weakest: float
    strongest: float


@dataclass(frozen=True)
class SmallestBreak:
    """An image and the smallest change that breaks it."""

    model: str
    operator: str
    image: str
    level: int
    severities: tuple[float, ...]
    amount: float
    distance: float
    label: int
    prediction: int
    confidence: float | None
    tag: str = ""


_IMAGES = "(select * from rows where lens = 'knob' and smallest)"
_HARDNESS = """
    select model, operator, count(*) filter (status = 'broken'), count(*) filter (status = 'survived'),
           count(*) filter (status = 'skipped'), count(*) filter (status = 'failed'),
           avg({distance}) filter (status = 'broken'), stddev_samp({distance}) filter (status = 'broken')
    from {images} group by all order by all
"""
# by the level, of which the amount is a function: an image that survived breaks beyond the last one
_MEDIANS = """
    select model, operator, direction, quantile_disc(strength, 0.5), arg_min(amount, abs(strength - median)) from (
        select *, quantile_disc(strength, 0.5) over (partition by model, operator, direction) as median from (
            select model, operator, direction, image, arg_min(amount, level) as amount,
                   min(case when status = 'broken' then level else {survived} end) as strength
            from rows where lens = 'knob' and status in ('broken', 'survived') group by all))
    group by all order by all
"""
# the paper's T: the mean smallest distance over all models
_FOOLED = """
    with common as (select operator, avg({distance}) as threshold from {images} where status = 'broken' group by all)
    select model, operator, any_value(threshold), count(*) filter ({distance} < threshold)
    from {images} join common using (operator) where status in ('broken', 'survived') group by all
"""
_QUERIES = """
    select model, operator, avg(queries) from (
        select model, operator, image, sum(queries) as queries from (
            select distinct model, operator, image, direction, queries from rows
            where lens = 'knob' and status != 'skipped')
        group by all)
    group by all
"""
_NON_MONOTONE = """
    select model, operator, count(*), count(*) filter (non_monotone) from {images} where status = 'broken' group by all
"""
# weakest and strongest by level: some amounts (a factor of light below 1) decrease as the change grows
_RANGES = """
    select model, operator, direction, count(*), avg(amount), stddev_samp(amount), arg_min(amount, level),
           arg_max(amount, level) from (
        select model, operator, direction, image, arg_min(amount, level) as amount, min(level) as level
        from rows where lens = 'knob' and status = 'broken' group by all)
    group by all order by all
"""
_CURVES = """
    select model, operator, list({distance} order by {distance}) filter (status = 'broken'), count(*)
    from {images} where status in ('broken', 'survived') group by all order by all
"""
_AMOUNTS = """
    select model, operator, direction, coalesce(list(amount order by level) filter (broken), []), count(*) from (
        select model, operator, direction, image, bool_or(status = 'broken') as broken,
               arg_min(amount, level) filter (status = 'broken') as amount, min(level) filter (status = 'broken') as level
        from rows where lens = 'knob' and status in ('broken', 'survived') group by all)
    group by all order by all
"""
_SMALLEST = """
    select model, operator, image, level, severity, severity_x, severity_y, amount, {distance}, label, prediction,
           confidence, case when number > $most then '{median}' else '' end
    from (select *, row_number() over (partition by model, operator order by {distance}, image) as number,
                 count(*) over (partition by model, operator) as breaks
          from {images} where status = 'broken')
    where number <= $most or number = (breaks + 1) // 2
    order by model, operator, number
"""
_BREAKS = "select {owner} as owner, {name} as name, image, {{distance}} as value from {{images}} where status = 'broken'"


def _query(run: Run, sql: str, distance: str, **given: Any) -> list[tuple[Any, ...]]:
    return run.query(sql.format(distance=distance, images=_IMAGES, survived=SURVIVED, median=MEDIAN), given or None)


def compute_hardness(run: Run, distance: str, *, whole_grid: bool) -> dict[Key, Hardness]:
    """Return the hardness of every model under every property. `whole_grid`: whether all grid points were queried."""
    fooled = {(model, operator): rest for model, operator, *rest in _query(run, _FOOLED, distance)}
    queries = {(model, operator): value for model, operator, value in _query(run, _QUERIES, distance)}
    non_monotone = {}
    if whole_grid:
        counts = _query(run, _NON_MONOTONE, distance)
        non_monotone = {(model, operator): proportion(some, total) for model, operator, total, some in counts}
    medians: dict[Key, dict[str, float | None]] = {}
    for model, operator, direction, strength, amount in _query(run, _MEDIANS, distance):
        medians.setdefault((model, operator), {})[direction] = amount if strength < SURVIVED else None
    hardness = {}
    for model, operator, broken, survived, skipped, failed, value, deviation in _query(run, _HARDNESS, distance):
        key = model, operator
        threshold, below = fooled.get(key, (math.nan, 0))
        hardness[key] = Hardness(
            model=model,
            operator=operator,
            unit=run.facts(operator).get("unit") or "",
            broken=broken,
            survived=survived,
            skipped=skipped,
            failed=failed,
            robustness=mean(math.nan if value is None else value, deviation, broken),
            survived_share=proportion(survived, broken + survived),
            threshold=threshold,
            fooled=proportion(below, broken + survived),
            median=medians.get(key, {}),
            queries=queries.get(key, 0.0),
            non_monotone=non_monotone.get(key),
        )
    return hardness


def rank_properties(run: Run, distance: str) -> dict[str, Extremes]:
    """Return, by model, the properties with the smallest and the largest breaking changes."""
    sql = _BREAKS.format(owner="model", name="operator")
    return find_extremes(run, sql.format(distance=distance, images=_IMAGES))


def find_contenders(run: Run, distance: str) -> dict[str, tuple[str, ...]]:
    """Return, by property, the model with the largest breaking changes and those that are not clearly less robust."""
    sql = _BREAKS.format(owner="operator", name="model")
    found = find_extremes(run, sql.format(distance=distance, images=_IMAGES))
    return {operator: extremes.highest for operator, extremes in found.items()}


def compute_ranges(run: Run) -> list[BreakingRange]:
    """Return the breaking range of every model, property and direction."""
    return [
        BreakingRange(model, operator, direction, count, mean(value, deviation, count), weakest, strongest)
        for model, operator, direction, count, value, deviation, weakest, strongest in run.query(_RANGES)
    ]


def compute_curves(run: Run, distance: str) -> list[dict[str, Any]]:
    """Return the share of images that a distance or less breaks, at no more points than a chart can show."""
    rows = _query(run, _CURVES, distance)
    largest: dict[str, float] = {}
    for _, operator, distances, _ in rows:
        largest[operator] = max([largest.get(operator, 0.0), *(distances or [])])
    records = []
    for model, operator, distances, count in rows:
        values = distances or []
        last = len(values) - 1
        indices = sorted({round(step * last / CURVE_POINTS) for step in range(CURVE_POINTS + 1)}) if values else []
        points = [(values[index], (index + 1) / count) for index in indices]
        points.append((largest[operator], len(values) / count))  # all lines end at the same distance
        records += [
            {"model": model, "operator": operator, "distance": value, "share": share}
            for value, share in points
            if value > 0
        ]
    return records


def compute_amount_curves(run: Run) -> list[dict[str, Any]]:
    """Return the share of images that an amount or less breaks, in each direction; lines begin where nothing changes."""
    records = []
    for model, operator, direction, amounts, count in _query(run, _AMOUNTS, "mse"):
        last, neutral = len(amounts) - 1, run.facts(operator).get("neutral", 0.0)
        indices = sorted({round(step * last / CURVE_POINTS) for step in range(CURVE_POINTS + 1)}) if amounts else []
        points = [(neutral, 0.0), *((amounts[index], (index + 1) / count) for index in indices)]
        records += [
            {"model": model, "operator": operator, "direction": direction, "amount": amount, "share": share}
            for amount, share in points
        ]
    return records


def find_smallest_breaks(run: Run, most: int, distance: str = "mse") -> list[SmallestBreak]:
    """Return, for each model and property, the images that the smallest changes break, and the median one."""
    return [
        SmallestBreak(model, operator, image, level, tuple(each for each in severities if each is not None), *rest)
        for model, operator, image, level, severities, rest in (
            (*row[:4], row[4:7], row[7:]) for row in _query(run, _SMALLEST, distance, most=most)
        )
    ]
