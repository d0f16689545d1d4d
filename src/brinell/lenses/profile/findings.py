"""Degradation profiles from rows: curves, areas, failure points and the images that break first."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import duckdb

from brinell.errors import RunError
from brinell.perturb.operator import find_operator
from brinell.runs.names import title
from brinell.runs.statistics import Estimate, first_below, mean, proportion

METRICS = ("accuracy", "rank", "probability", "confidence")
OF_DETECTORS = ("map", "map50")
THRESHOLDS = (0.9, 0.5, 0.1)
AVERAGE = "average"


@dataclass(frozen=True)
class Point:
    """One level of one operator for one model: the four metrics, and what the images look like there.

    `map` and `map50` are a detector's average precision, over all images at once and so without an interval.
    """

    level: int
    images: int
    accuracy: Estimate
    rank: Estimate
    probability: Estimate
    confidence: Estimate
    amount: float
    changed: float
    grey: float | None
    colours: float | None
    map: Estimate | None = None
    map50: Estimate | None = None


@dataclass(frozen=True)
class Failure:
    """Where a model's accuracy first falls below a threshold; level None: never."""

    model: str
    operator: str
    threshold: float
    level: int | None
    told: str
    changed: float | None


@dataclass(frozen=True)
class Breaker:
    """An image that a model gets right when clean, and the first level at which it doesn't."""

    model: str
    operator: str
    image: str
    level: int
    label: int
    prediction: int
    confidence: float
    clean_confidence: float


@dataclass(frozen=True)
class Profiles:
    """All that the profile lens found. `curves` and `areas` go by (model, operator); `averages` by model."""

    curves: dict[tuple[str, str], list[Point]]
    averages: dict[str, list[dict[str, Estimate]]]
    areas: dict[tuple[str, str], Estimate]
    average_areas: dict[str, Estimate]
    failures: list[Failure]

    @property
    def models(self) -> list[str]:
        """The models, in the order of their mean area, the hardest first."""
        return sorted(self.average_areas, key=lambda model: -self.average_areas[model].value)

    @property
    def operators(self) -> list[str]:
        """All operators, the most damaging first; attacks, which are there for comparison, last."""
        names = {operator for _, operator in self.areas}
        return sorted(names, key=lambda name: (find_operator(name).white_box, self.mean_area(name)))

    @property
    def metrics(self) -> tuple[str, ...]:
        """What there are curves of."""
        detectors = any(points[0].map is not None for points in self.curves.values())
        return METRICS + OF_DETECTORS if detectors else METRICS

    def precision(self, model: str, metric: str = "map") -> tuple[float, float] | None:
        """A detector's average precision on clean images, and its mean over all levels of all averaged operators."""
        values = [levels[metric].value for levels in self.averages[model] if metric in levels]
        return (values[0], sum(values) / len(values)) if values else None

    @property
    def averaged_operators(self) -> list[str]:
        """The operators that averages are over."""
        return averaged(self.areas)

    def mean_area(self, operator: str) -> float:
        """An operator's area, averaged over the models that have it."""
        found = [area.value for (_, name), area in self.areas.items() if name == operator]
        return sum(found) / len(found)

    def failure(self, model: str, operator: str, threshold: float) -> Failure:
        """Where one model fails under one operator."""
        return _failure(model, operator, self.curves[model, operator], threshold)

    def verdict(self, model: str) -> str:
        """The finding about a model in a sentence."""
        natural = [name for owner, name in self.areas if owner == model and not find_operator(name).white_box]
        named = natural or [name for owner, name in self.areas if owner == model]
        worst, *_, best = sorted(named, key=lambda name: self.areas[model, name].value) * 2
        clean = self.curves[model, worst][0].accuracy.value
        half = self.failure(model, worst, 0.5)
        fall = (
            f"accuracy is below half after {half.told}"
            if half.level
            else "accuracy never falls below half"
            if half.level is None
            else "accuracy is below half even on clean images"
        )
        start = (
            f"{model} is right on {clean:.0%} of the clean images and on {self.average_areas[model].value:.0%} on average "
        )
        falls = self.precision(model)
        precise = "" if falls is None else f" Its mAP is {falls[0]:.1%} on clean images and {falls[1]:.1%} on average."
        if worst == best:
            return f"{start}over all levels of {title(worst)}: {fall}.{precise}"
        return (
            f"{start}over all degradations. It is hurt most by {title(worst)} ({fall}) and least by {title(best)} "
            f"({self.areas[model, best].value:.0%} on average).{precise}"
        )

    def _repr_html_(self) -> str:
        """The verdicts and a table of areas, for notebooks."""
        verdicts = "".join(f"<p>{html.escape(self.verdict(model))}</p>" for model in self.models)
        heads = "".join(f"<th>{html.escape(model)}</th>" for model in self.models)
        lines: list[tuple[str, list[Estimate | None]]]
        lines = [("average", [self.average_areas[model] for model in self.models])]
        lines += [(title(name), [self.areas.get((model, name)) for model in self.models]) for name in self.operators]
        rows = "".join(f"<tr><th>{html.escape(name)}</th>{''.join(map(_cell, areas))}</tr>" for name, areas in lines)
        caption = "mean accuracy over all levels, with 95 % intervals"
        return f"{verdicts}<table><caption>{caption}</caption><tr><th></th>{heads}</tr>{rows}</table>"

    def table(self) -> list[dict[str, Any]]:
        """The curves as flat records, one a model, operator, level and metric; for figures and JSON."""
        records = []
        for (model, operator), points in self.curves.items():
            for point in points:
                for metric in self.metrics:
                    estimate: Estimate | None = getattr(point, metric)
                    if estimate is not None:
                        records.append(
                            _record(model, operator, point.level, metric, estimate, told(operator, point, points[0]))
                        )
        for model, levels in self.averages.items():
            for level, metrics in enumerate(levels):
                records += [_record(model, AVERAGE, level, metric, estimate, "") for metric, estimate in metrics.items()]
        return records

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "verdicts": {model: self.verdict(model) for model in self.models},
            "models": {model: _plain(asdict(self.average_areas[model])) for model in self.models},
            "areas": [
                _plain({"model": model, "operator": operator, **asdict(area)})
                for (model, operator), area in self.areas.items()
            ],
            "failures": [asdict(failure) for failure in self.failures],
            "profiles": [_plain(record) for record in self.table()],
        }


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    """A record with None for what can't be told: NaN is no JSON."""
    return {key: None if value != value else value for key, value in record.items()}


def _cell(area: Estimate | None) -> str:
    """An area as a cell of an HTML table."""
    return "<td>–</td>" if area is None else f"<td>{area.value:.1%} <small>[{area.low:.1%}, {area.high:.1%}]</small></td>"


def _record(model: str, operator: str, level: int, metric: str, estimate: Estimate, told: str) -> dict[str, Any]:
    return {"model": model, "operator": operator, "level": level, "metric": metric, **asdict(estimate), "told": told}


def told(operator: str, point: Point, clean: Point) -> str:
    """A level in natural units: what was done to the image, or what is left of it."""
    facts = find_operator(operator).facts
    share = f"{point.changed:.0%} of pixels"
    if facts.told == "grey" and point.grey is not None:
        return f"mean grey {clean.grey:.0f} → {point.grey:.0f}, {share}"
    if facts.told == "colours" and point.colours is not None:
        return f"{point.colours:.0f} colours left ({point.amount:g} {facts.unit})"
    amount = facts.tell(point.amount)
    return amount if facts.unit == "quality" else f"{amount}, {share}"


def profiles(connection: duckdb.DuckDBPyConnection, thresholds: tuple[float, ...] = THRESHOLDS) -> Profiles:
    """Compute all profiles from the table `rows`."""
    curves = _curves(connection)
    if not curves:
        raise RunError("the run has no rows yet; finish it with the command that began it")
    areas = {
        (model, operator): mean(value, deviation, count, most=1)
        for model, operator, value, deviation, count in connection.execute(_AREAS).fetchall()
    }
    failures = [
        _failure(model, operator, points, threshold)
        for (model, operator), points in curves.items()
        for threshold in thresholds
    ]
    averages, average_areas = _averages(connection, averaged(areas))
    return Profiles(curves, averages, areas, average_areas, failures)


def averaged(areas: Iterable[tuple[str, str]]) -> list[str]:
    """The operators to average over: those that every model has, without attacks unless there is nothing else."""
    pairs = set(areas)
    models = {model for model, _ in pairs}
    common = sorted({name for _, name in pairs if all((model, name) in pairs for model in models)})
    return [name for name in common if not find_operator(name).white_box] or common


_PRECISION = "select model, operator, level, map, map50 from precision"
_AVERAGE_PRECISION = """
    select model, level, avg(map), avg(map50) from precision where list_contains($common, operator)
    group by all order by all
"""
_CURVES = """
    select model, operator, level, count(*), sum(correct::int)::bigint, avg(rank), stddev_samp(rank),
           avg(probability), stddev_samp(probability), avg(confidence), stddev_samp(confidence),
           avg(amount), avg(changed), avg(grey), avg(colours)
    from rows where lens = 'profile' group by all order by all
"""
_AREAS = """
    select model, operator, avg(area), stddev_samp(area), count(*) from (
        select model, operator, image, avg(correct::int) as area from rows where lens = 'profile' group by all)
    group by all order by all
"""
# images are what was sampled, so an average over operators is taken within each image first
_AVERAGES = """
    select model, level, count(*), avg(accuracy), stddev_samp(accuracy), avg(rank), stddev_samp(rank), avg(probability),
           stddev_samp(probability), avg(confidence), stddev_samp(confidence)
    from (select model, level, image, avg(correct::int) as accuracy, avg(rank) as rank, avg(probability) as probability,
                 avg(confidence) as confidence
          from rows where lens = 'profile' and list_contains($common, operator) group by all)
    group by all order by all
"""
_AVERAGE_AREAS = """
    select model, avg(area), stddev_samp(area), count(*) from (
        select model, image, avg(correct::int) as area from rows
        where lens = 'profile' and list_contains($common, operator) group by all)
    group by all order by all
"""


def _curves(connection: duckdb.DuckDBPyConnection) -> dict[tuple[str, str], list[Point]]:
    curves: dict[tuple[str, str], list[Point]] = {}
    precise = {
        (model, operator, level): dict(zip(OF_DETECTORS, map(_alone, figures), strict=True))
        for model, operator, level, *figures in connection.execute(_PRECISION).fetchall()
    }
    for model, operator, level, count, right, *rest in connection.execute(_CURVES).fetchall():
        rank, rank_sd, probability, probability_sd, confidence, confidence_sd, amount, changed, grey, colours = rest
        point = Point(
            level=level,
            images=count,
            accuracy=proportion(right, count),
            rank=mean(rank, rank_sd, count),
            probability=mean(probability, probability_sd, count, most=1),
            confidence=mean(confidence, confidence_sd, count, most=1),
            amount=amount,
            changed=changed,
            grey=grey,
            colours=colours,
            **precise.get((model, operator, level), {}),
        )
        curves.setdefault((model, operator), []).append(point)
    return curves


def _alone(value: float) -> Estimate:
    """A figure without an interval."""
    return Estimate(value, math.nan, math.nan)


def _averages(
    connection: duckdb.DuckDBPyConnection, common: list[str]
) -> tuple[dict[str, list[dict[str, Estimate]]], dict[str, Estimate]]:
    levels: dict[str, list[dict[str, Estimate]]] = {}
    for model, _, count, *moments in connection.execute(_AVERAGES, {"common": common}).fetchall():
        metrics = {
            metric: mean(moments[2 * place], moments[2 * place + 1], count, most=math.inf if metric == "rank" else 1)
            for place, metric in enumerate(METRICS)
        }
        levels.setdefault(model, []).append(metrics)
    for model, level, *figures in connection.execute(_AVERAGE_PRECISION, {"common": common}).fetchall():
        levels[model][level] |= dict(zip(OF_DETECTORS, map(_alone, figures), strict=True))
    areas = connection.execute(_AVERAGE_AREAS, {"common": common}).fetchall()
    return levels, {model: mean(value, deviation, count, most=1) for model, value, deviation, count in areas}


def _failure(model: str, operator: str, points: list[Point], threshold: float) -> Failure:
    level = first_below([point.accuracy.value for point in points], threshold)
    if level is None:
        return Failure(model, operator, threshold, None, "never", None)
    if level == 0:
        return Failure(model, operator, threshold, 0, "below on clean images", 0.0)
    return Failure(model, operator, threshold, level, told(operator, points[level], points[0]), points[level].changed)


_BREAKERS = """
    with clean as (select model, operator, image, label, confidence from rows
                   where lens = 'profile' and level = 0 and correct),
    fallen as (select model, operator, image, min(level) as level from rows
               where lens = 'profile' and not correct group by all),
    ranked as (
        select fallen.model, fallen.operator, fallen.image, fallen.level, clean.label, clean.confidence as sure,
               row_number() over (partition by fallen.model, fallen.operator
                                  order by fallen.level, clean.confidence desc, fallen.image) as place
        from fallen join clean using (model, operator, image))
    select ranked.model, ranked.operator, ranked.image, ranked.level, ranked.label, any_value(rows.prediction),
           any_value(rows.confidence), any_value(ranked.sure)
    from ranked join rows using (model, operator, image, level)
    where place <= $most and lens = 'profile'
    group by all order by ranked.model, ranked.operator, ranked.level, any_value(ranked.sure) desc
"""


def breakers(connection: duckdb.DuckDBPyConnection, most: int) -> list[Breaker]:
    """For each model and operator the images that break first, the surest answers before the others."""
    return [Breaker(*row) for row in connection.execute(_BREAKERS, {"most": most}).fetchall()]
