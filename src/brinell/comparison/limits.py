"""Limits checked on one run: what each rule is about, with its interval, and whether it is met."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from brinell.comparison.measures import CLEAN_IMAGES, TITLES, averaged_operators
from brinell.comparison.rules import ALL, HALF, Gate, Require, Rule
from brinell.errors import ConfigError, UnknownName
from brinell.lenses.reader import AVERAGE, Measure, Reading
from brinell.registry import VariantId, nearest
from brinell.runs.plain import to_plain
from brinell.runs.run import Run
from brinell.runs.slices import Slice, find_slices
from brinell.runs.statistics import Estimate, mean, proportion

SLACK = 1e-9  # of comparisons with a limit: an accuracy of 80 % is at least 80 %


@dataclass(frozen=True)
class LimitCheck:
    """One rule on one figure; `untested` if there is no figure, for lack of images."""

    rule: Rule
    reading: Reading
    title: str
    require: Require

    @property
    def subject(self) -> str:
        """What was checked: the model."""
        return self.reading.model

    @property
    def state(self) -> str:
        """Whether the figure meets the rule: passed, failed or untested."""
        value = self.reading.value
        if math.isnan(value.value):
            return "untested"
        low, high = (value.low, value.high) if self.require == "interval" else (value.value, value.value)
        return "passed" if self._meets(low, high) else "failed"

    def _meets(self, low: float, high: float) -> bool:
        scale = 100 if self.rule.share else 1
        above = self.rule.min is None or scale * low >= self.rule.min - SLACK  # a comparison with NaN is false
        below = self.rule.max is None or scale * high <= self.rule.max + SLACK
        return above and below

    @property
    def shown(self) -> str:
        """The figure with its interval."""
        value = self.reading.value
        if math.isnan(value.value):
            return "no images"
        numbers = [self._format(each) for each in (value.value, value.low, value.high)]
        interval = "" if math.isnan(value.low) else f" [{numbers[1]}, {numbers[2]}]"
        unit = "%" if self.rule.share else self.reading.unit
        if math.isinf(value.value) or not unit:
            return f"{numbers[0]}{interval}"
        return f"level {numbers[0]}{interval}" if unit == "level" else f"{numbers[0]} {unit}{interval}"

    def _format(self, value: float) -> str:
        if math.isinf(value):
            return "never"
        return f"{100 * value:.1f}" if self.rule.share else f"{value:.3g}"

    @property
    def finding(self) -> str:
        """The figure that was checked, in words."""
        return f"{self.title}: {self.shown}{f' ({self.doubt})' if self.doubt else ''}"

    @property
    def summary(self) -> str:
        """The figure that was checked, and what was expected, in words."""
        return f"{self.finding}, expected {self.rule.limit}"

    @property
    def doubt(self) -> str:
        """Why a figure fails that meets its limit by itself."""
        value = self.reading.value
        if self.state != "failed" or not self._meets(value.value, value.value):
            return ""
        return "too few images for an interval" if math.isnan(value.low) else "the estimate meets it, the interval doesn't"

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data; what is never reached is null."""
        reading = self.reading
        bounds = {key: each if math.isfinite(each) else None for key, each in vars(reading.value).items()}
        content: dict[str, Any] = to_plain(
            {
                "rule": self.rule.title,
                "measure": self.rule.measure,
                "model": reading.model,
                "operator": reading.operator,
                "level": reading.level,
                "detail": reading.detail,
                "slice": reading.slice or None,
                "images": reading.images,
                "min": self.rule.min,
                "max": self.rule.max,
                "require": self.require,
                "never": math.isinf(reading.value.value),
                "state": self.state,
            }
        )
        return {**content, **bounds, "unit": "share" if self.rule.share else reading.unit}


def check_limits(gate: Gate, run: Run, models: Sequence[str] | None = None) -> list[LimitCheck]:
    """Check a gate's limits on a run's models. A rule about something that was not measured raises."""
    for rule in gate.limits:  # all names, before any row is read
        _require_measured(rule, run)
    known: dict[tuple[Any, ...], list[Reading]] = {}
    checks: list[LimitCheck] = []
    for rule in gate.limits:
        source = rule.measure, rule.amount, rule.threshold, rule.slices
        if source not in known:
            order = list(run.models)
            known[source] = sorted(_read(rule, run), key=lambda one: order.index(one.model))
        for reading in _select(rule, run, known[source], models):
            checks.append(LimitCheck(rule, reading, _title(rule, run, reading), rule.require or gate.require))
    return checks


def _require_measured(rule: Rule, run: Run) -> None:
    """Raise if the run has no such lens, operator or model, by its manifest."""
    lens = rule.figure.lens
    if lens is not None and lens not in run.lenses:
        raise ConfigError(
            f"a rule is about {rule.measure}, which the {lens} lens measures, but {run.folder} has the lens "
            f"{', '.join(run.lenses)}; run it with --lens {lens}, or drop the rule"
        )
    operators = [known for operator in run.manifest["operators"] for known in (operator, VariantId.parse(operator).name)]
    for kind, names, known in (
        ("operator", rule.operators, [ALL, AVERAGE, *operators] if lens else [ALL, AVERAGE, CLEAN_IMAGES]),
        ("model", rule.models, [ALL, *run.models]),
    ):
        for name in names:
            if name not in known:
                raise UnknownName(f"a rule about {rule.measure} names the {kind} {name!r}; {_nearest(name, known)}")


def _nearest(name: str, known: Iterable[str]) -> str:
    return nearest(name, list(dict.fromkeys(known)))


def _select(rule: Rule, run: Run, readings: Sequence[Reading], models: Sequence[str] | None) -> list[Reading]:
    """Return the readings that a rule is about."""
    own = [one for one in readings if ALL in rule.models or one.model in rule.models]
    own = [one for one in own if models is None or one.model in models]
    if not own and models is not None:  # a rule about another pair's model
        return []
    selected: list[Reading] = []
    for name in rule.operators:
        mine = [one for one in own if matches(name, one.operator)] or _without_images(rule, run, name)
        if not mine:
            raise UnknownName(_explain_absent(rule, run, name, own))
        selected += [one for one in mine if one not in selected]
    if not rule.levels:
        return selected
    levels = sorted({one.level for one in selected if one.level is not None})
    for level in rule.levels:
        if level not in levels:
            raise ConfigError(
                f"a rule about {rule.measure} has level {level}, but {run.folder} has levels {levels[0]} to {levels[-1]}"
            )
    return [one for one in selected if one.level in rule.levels]


def _without_images(rule: Rule, run: Run, name: str) -> list[Reading]:
    """Return empty readings of a measure that not all images have, under operators that its lens measured."""
    if rule.figure.unit != "percent":
        return []
    pairs = run.query(
        "select distinct model, operator from rows where lens = $lens order by all", {"lens": rule.figure.lens}
    )
    nothing = Estimate(math.nan, math.nan, math.nan)
    return [
        Reading(model, operator, nothing, 0)
        for model, operator in pairs
        if matches(name, operator) and (ALL in rule.models or model in rule.models)
    ]


def _explain_absent(rule: Rule, run: Run, name: str, readings: Sequence[Reading]) -> str:
    """Return why a rule's operator has no figure."""
    if rule.amount is not None:
        sql = """select operator, min(amount), max(amount) from rows where lens = $lens and level > 0 and amount is not null
                 group by all order by all"""
        found = run.query(sql, {"lens": rule.figure.lens})
        ranges = [f"{operator} from {low:g} to {high:g}" for operator, low, high in found if matches(name, operator)]
        if ranges:
            return f"a rule about {rule.measure} has the amount {rule.amount:g}, but the run has {', '.join(ranges[:3])}"
    if not readings:
        return f"a rule is about {rule.measure} ({rule.figure.what}), which no row of {run.folder} has; drop the rule"
    known = [ALL, *(one.operator for one in readings)]
    return f"a rule about {rule.measure} names {name!r}, which has none in this run; {_nearest(name, known)}"


def matches(name: str, operator: str) -> bool:
    """Whether a rule's name stands for an operator."""
    if name == ALL:
        return operator != AVERAGE
    return name in (operator, VariantId.parse(operator).name) or (name == AVERAGE and operator == CLEAN_IMAGES)


def _title(rule: Rule, run: Run, reading: Reading) -> str:
    """Return the place of a reading for people: operator, level or amount, and detail."""
    parts = [TITLES.get(reading.operator) or run.title(reading.operator)]
    if rule.amount is not None:
        parts.append(run.format(reading.operator, rule.amount))
    if reading.level is not None:
        parts.append(f"level {reading.level}")
    return ", ".join([*parts, *(text for text in (reading.detail, reading.slice) if text)])


# ---- readings ----


def _read(rule: Rule, run: Run) -> list[Reading]:
    """Return what a rule's measure or statistic is in a run, for all models and operators."""
    figure = rule.figure
    if isinstance(figure, Measure):
        return _read_slices(rule, figure, run) if rule.slices else _read_measure(figure, run, rule.amount)
    share = (HALF if rule.threshold is None else rule.threshold) / 100
    return figure.read(run, run.lens(figure.lens), share)


def _read_slices(rule: Rule, measure: Measure, run: Run) -> list[Reading]:
    """Return the readings of each slice that a rule names."""
    readings: dict[tuple[str, str], list[Reading]] = {}
    for model in run.models:
        for text in rule.slices:
            for one, images in find_slices(run, Slice.parse(text), model).items():
                found = _read_measure(measure, run, rule.amount, images)
                readings[model, str(one)] = [replace(each, slice=str(one)) for each in found if each.model == model]
    return [reading for own in readings.values() for reading in own]


def _read_measure(measure: Measure, run: Run, amount: float | None, images: list[str] | None = None) -> list[Reading]:
    """Return the mean of a measure for each model and operator (and level), and the average over operators.

    It is over all images, or over some of them.
    """
    if amount is None or measure.by_amount is None:
        sql = measure.sql.format(**run.lens(measure.lens)) if measure.lens else measure.sql
        level = "level" if measure.by_level else "null"
    else:
        sql, level = measure.by_amount(run, amount), "null"
    columns = f"model, operator, {level}, count(*), sum(value), avg(value), stddev_samp(value)"
    only = "" if images is None else "semi join (select unnest($images) as image) using (image)"
    given: dict[str, Any] = {} if images is None else {"images": images}
    kept = f"(select * from ({sql}) {only} where value is not null)"
    readings = [
        Reading(model, operator, _estimate(measure, total, value, deviation, count), count, at)
        for model, operator, at, count, total, value, deviation in run.query(
            f"select {columns} from {kept} group by all order by all", given
        )
    ]
    operators = averaged_operators(measure, run, dict.fromkeys(one.operator for one in readings))
    if measure.unit != "points" or len(operators) < 2:
        return readings
    within = f"""select model, {level} as level, image, avg(value) as value from {kept}
                 where list_contains($operators, operator) group by all having count(distinct operator) = $count"""
    averages = run.query(
        f"select model, level, count(*), avg(value), stddev_samp(value) from ({within}) group by all order by all",
        {"operators": operators, "count": len(operators), **given},
    )
    return readings + [
        Reading(model, AVERAGE, mean(value, deviation, count, most=1), count, at)
        for model, at, count, value, deviation in averages
    ]


def _estimate(measure: Measure, total: float, value: float, deviation: float | None, count: int) -> Estimate:
    """Return a mean with the interval that suits the measure, as `brinell summary` prints it."""
    if measure.yes_or_no:
        return proportion(round(total), count)
    return mean(value, deviation, count, most=1 if measure.unit == "points" else math.inf)
