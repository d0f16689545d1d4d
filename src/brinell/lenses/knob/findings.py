"""What the knob lens found, from rows: how much change it takes to break each model, property by property."""

from __future__ import annotations

import html
import math
from dataclasses import asdict, dataclass
from typing import Any

import duckdb

from brinell.errors import RunError
from brinell.perturb.property import property_facts, property_names
from brinell.runs.names import title
from brinell.runs.statistics import Estimate, mean, proportion

CURVE_POINTS = 60
SURVIVOR = 2**15  # a place in the grid that none has


@dataclass(frozen=True)
class Hardness:
    """One model under one property. Figures are over images; `skipped` ones were wrong before anything was changed.

    `robustness` is the mean of the smallest breaking distances over the images that broke (the paper's R);
    `survived_share` and `fooled` are over images that could break: those that never did, and those that did below the
    property's common `threshold`. `middle` is, for each direction, the natural amount by which half of them are broken,
    None where more than half survive it. `uneven` is the share of images that fail in several intervals or recover, where
    the whole grid was asked.
    """

    model: str
    operator: str
    broken: int
    survived: int
    skipped: int
    failed: int
    robustness: Estimate
    survived_share: Estimate
    threshold: float
    fooled: Estimate
    middle: dict[str, float | None]
    queries: float
    uneven: Estimate | None

    @property
    def asked(self) -> int:
        """Images that could break."""
        return self.broken + self.survived

    @property
    def told(self) -> str:
        """What it takes to lose half of the images, in natural units and all directions."""
        tell, several = property_facts(self.operator).tell, len(self.middle) > 1
        named = {way: f" {way}" if several else "" for way in self.middle}
        if not self.asked:
            return "no image could break"
        lost = [f"{tell(abs(amount))}{named[way]}" for way, amount in self.middle.items() if amount is not None]
        safe = [way for way, amount in self.middle.items() if amount is None]
        if not lost:
            return "more than half survive"
        return " or ".join(lost) + "".join(f"; more than half survive {way}" for way in safe)


@dataclass(frozen=True)
class Side:
    """How far one direction of a property has to go to break a model: its amount on average, at least and at most."""

    model: str
    operator: str
    direction: str
    images: int
    mean: Estimate
    least: float
    largest: float


@dataclass(frozen=True)
class Least:
    """An image that a model loses under a property, and the smallest change that does it."""

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


@dataclass(frozen=True)
class Knobs:
    """All that the knob lens found. `hardness` goes by (model, operator); `distance` is the one that figures are in."""

    distance: str
    hardness: dict[tuple[str, str], Hardness]
    sides: list[Side]
    curves: list[dict[str, Any]]
    search: str = "exact"
    resample: bool = False

    @property
    def models(self) -> list[str]:
        """The models, the hardest first: by their mean place among the models over all properties."""
        places: dict[str, list[int]] = {model: [] for model, _ in self.hardness}
        for operator in {operator for _, operator in self.hardness}:
            for place, found in enumerate(self.ranked(operator)):
                if found.asked:
                    places[found.model].append(place)
        return sorted(places, key=lambda model: sum(places[model]) / len(places[model]) if places[model] else math.inf)

    @property
    def operators(self) -> list[str]:
        """The properties, in the order of their categories."""
        known = property_names()
        return sorted(
            {operator for _, operator in self.hardness}, key=lambda name: (known.index(name.partition(":")[0]), name)
        )

    def ranked(self, operator: str) -> list[Hardness]:
        """The models under one property, the hardest first: those that never broke, and last those that weren't asked."""
        found = [hardness for (_, name), hardness in self.hardness.items() if name == operator]
        return sorted(found, key=lambda one: (not one.asked, one.broken > 0, -one.robustness.value if one.broken else 0))

    def best(self, operator: str) -> str | None:
        """The hardest model under one property, where there are several."""
        first, *others = self.ranked(operator)
        return first.model if others and first.asked else None

    def verdict(self, model: str) -> str:
        """The finding about a model in a sentence."""
        mine = [hardness for (owner, _), hardness in self.hardness.items() if owner == model]
        broken = sorted((one for one in mine if one.broken), key=lambda one: one.robustness.value)
        if not any(one.asked for one in mine):
            return f"Nothing is known of {model}: no image was right when clean and got answers."
        if not broken:
            properties = "the property" if len(mine) == 1 else f"all {len(mine)} properties"
            return f"{model} was never broken: every image that it gets right survived {properties}."
        weak, strong = broken[0], broken[-1]
        sentence = f"{model} breaks with the least change under {title(weak.operator)} ({_half(weak)})"
        if strong is not weak:
            sentence += f" and needs the most under {title(strong.operator)} ({_half(strong)})"
        safe = max(mine, key=lambda one: one.survived_share.value)
        if safe.survived:
            sentence += f"; {safe.survived_share.value:.0%} of the images survive all {title(safe.operator)}"
        return sentence + "."

    def table(self) -> list[dict[str, Any]]:
        """One flat record a model and property."""
        return [
            {
                "model": one.model,
                "operator": one.operator,
                "broken": one.broken,
                "survived": one.survived,
                "skipped": one.skipped,
                "failed": one.failed,
                **{f"robustness_{key}": value for key, value in asdict(one.robustness).items()},
                **{f"survived_{key}": value for key, value in asdict(one.survived_share).items()},
                "threshold": one.threshold,
                **{f"fooled_{key}": value for key, value in asdict(one.fooled).items()},
                "middle": one.middle,
                "queries": one.queries,
                "uneven": None if one.uneven is None else one.uneven.value,
            }
            for one in self.hardness.values()
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "distance": self.distance,
            "search": self.search,
            "resample": self.resample,
            "verdicts": {model: self.verdict(model) for model in self.models},
            "hardness": [_plain(record) for record in self.table()],
            "sides": [_plain({**asdict(side), "mean": side.mean.value}) for side in self.sides],
            "curves": [_plain(record) for record in self.curves],
        }

    def _repr_html_(self) -> str:
        """The verdicts and the table of robustness, for notebooks."""
        verdicts = "".join(f"<p>{html.escape(self.verdict(model))}</p>" for model in self.models)
        heads = "".join(f"<th>{html.escape(model)}</th>" for model in self.models)
        rows = ""
        for operator in self.operators:
            cells = "".join(self._cell(model, operator) for model in self.models)
            rows += f"<tr><th>{html.escape(title(operator))}</th>{cells}</tr>"
        caption = f"mean smallest breaking change ({self.distance}), with 95 % intervals"
        return f"{verdicts}<table><caption>{caption}</caption><tr><th></th>{heads}</tr>{rows}</table>"

    def _cell(self, model: str, operator: str) -> str:
        found = self.hardness.get((model, operator))
        if found is None or not found.asked:
            return "<td>–</td>"
        value = found.robustness
        told = f"{value.value:.2e} <small>[{value.low:.1e}, {value.high:.1e}]</small>" if found.broken else "never broken"
        return f"<td><b>{told}</b></td>" if self.best(operator) == model else f"<td>{told}</td>"


def _half(found: Hardness) -> str:
    return f"half of the images are lost by {found.told}" if any(found.middle.values()) else found.told


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    """A record with None for what can't be told: NaN and infinity are no JSON."""
    return {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in record.items()}


_IMAGES = "(select * from rows where lens = 'knob' and smallest)"
_HARDNESS = """
    select model, operator, count(*) filter (status = 'broken'), count(*) filter (status = 'survived'),
           count(*) filter (status = 'skipped'), count(*) filter (status = 'failed'),
           avg({distance}) filter (status = 'broken'), stddev_samp({distance}) filter (status = 'broken')
    from {images} group by all order by all
"""
# by the strength of the change, of which the natural amount is a function: one that survived needs more than there is
_MIDDLES = """
    select model, operator, direction, quantile_disc(strength, 0.5), arg_min(amount, abs(strength - middle)) from (
        select *, quantile_disc(strength, 0.5) over (partition by model, operator, direction) as middle from (
            select model, operator, direction, image, arg_min(amount, level) as amount,
                   min(case when status = 'broken' then level else {survivor} end) as strength
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
_UNEVEN = """
    select model, operator, count(*), count(*) filter (uneven) from {images} where status = 'broken' group by all
"""
# from weak to strong, which for some amounts (a factor of light below 1) means from large to small
_SIDES = """
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
_LEAST = """
    select model, operator, image, level, severity, severity_x, severity_y, amount, {distance}, label, prediction,
           confidence
    from {images} where status = 'broken'
    qualify row_number() over (partition by model, operator order by {distance}, image) <= $most
    order by model, operator, {distance}
"""


def knobs(
    connection: duckdb.DuckDBPyConnection, distance: str = "mse", *, search: str = "exact", resample: bool = False
) -> Knobs:
    """Compute everything from the table `rows`; the rest is how they were searched."""

    def ask(sql: str) -> list[tuple[Any, ...]]:
        return connection.execute(sql.format(distance=distance, images=_IMAGES, survivor=SURVIVOR)).fetchall()

    fooled = {(model, operator): rest for model, operator, *rest in ask(_FOOLED)}
    queries = {(model, operator): value for model, operator, value in ask(_QUERIES)}
    uneven = {(model, operator): proportion(some, total) for model, operator, total, some in ask(_UNEVEN)}
    middles: dict[tuple[str, str], dict[str, float | None]] = {}
    for model, operator, direction, place, amount in ask(_MIDDLES):
        middles.setdefault((model, operator), {})[direction] = amount if place < SURVIVOR else None
    hardness = {}
    for model, operator, broken, survived, skipped, failed, value, deviation in ask(_HARDNESS):
        threshold, below = fooled.get((model, operator), (math.nan, 0))
        hardness[model, operator] = Hardness(
            model=model,
            operator=operator,
            broken=broken,
            survived=survived,
            skipped=skipped,
            failed=failed,
            robustness=mean(math.nan if value is None else value, deviation, broken),
            survived_share=proportion(survived, broken + survived),
            threshold=threshold,
            fooled=proportion(below, broken + survived),
            middle=middles.get((model, operator), {}),
            queries=queries.get((model, operator), 0.0),
            uneven=uneven.get((model, operator)) if search == "bands" else None,
        )
    if not hardness:
        raise RunError("the run has no rows yet; finish it with the command that began it")
    sides = [
        Side(model, operator, direction, count, mean(value, deviation, count), least, largest)
        for model, operator, direction, count, value, deviation, least, largest in ask(_SIDES)
    ]
    return Knobs(distance, hardness, sides, _curves(ask(_CURVES)), search, resample)


def _curves(found: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    """The share of images broken at a distance or less, at no more points than a figure can show."""
    reach: dict[str, float] = {}
    for _, operator, distances, _ in found:
        reach[operator] = max([reach.get(operator, 0.0), *(distances or [])])
    records = []
    for model, operator, distances, count in found:
        values = distances or []
        most = len(values) - 1
        places = sorted({round(step * most / CURVE_POINTS) for step in range(CURVE_POINTS + 1)}) if values else []
        points = [(values[place], (place + 1) / count) for place in places]
        points.append((reach[operator], len(values) / count))  # the line goes on as far as any does
        records += [
            {"model": model, "operator": operator, "distance": distance, "share": share}
            for distance, share in points
            if distance > 0
        ]
    return records


def least(connection: duckdb.DuckDBPyConnection, most: int, distance: str = "mse") -> list[Least]:
    """For each model and property the images that the smallest changes break."""
    found = connection.execute(_LEAST.format(distance=distance, images=_IMAGES), {"most": most}).fetchall()
    return [
        Least(model, operator, image, level, tuple(one for one in severities if one is not None), *measured)
        for model, operator, image, level, severities, measured in ((*row[:4], row[4:7], row[7:]) for row in found)
    ]
