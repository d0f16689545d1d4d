"""Degradation profiles from rows: what a model achieves at every level of an operator."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from brinell.lenses.profile.overlap import compute_average_miou, compute_miou
from brinell.runs.run import Run
from brinell.runs.statistics import Estimate, first_below, mean, proportion
from brinell.runs.weights import weighted_mean

METRICS = ("accuracy", "rank", "probability", "confidence")
DETECTION_METRICS = ("map", "map50")
SEGMENTATION_METRICS = ("miou",)
STRONGEST = 30  # the highest level that operators have
# a budget may leave an image without any changed version, which says nothing about its area
HAS_CELLS = "max(level) > 0 or max(inclusion) is null"
Key = tuple[str, str]  # model and operator
Metrics = dict[str, Estimate]


@dataclass(frozen=True)
class Point:
    """One level of one operator for one model: the metrics, and what the images look like there.

    `map` and `map50` are a detector's average precision and `miou` is a segmenter's mean IoU, which are computed over all
    images at once and have no interval.
    `caption` is the level in words: what was done to the image, or what is left of it.
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
    caption: str
    map: Estimate | None = None
    map50: Estimate | None = None
    miou: Estimate | None = None


@dataclass(frozen=True)
class FailurePoint:
    """The first level at which a model's accuracy drops below a threshold; None: it never does.

    `earliest` and `latest` are its 95 % interval: where the lower and the upper bound of accuracy first drop below.
    """

    model: str
    operator: str
    threshold: float
    level: int | None
    earliest: int | None
    latest: int | None
    caption: str
    changed: float | None


_CURVES = """
    select model, operator, level, count(*), sum(correct::int)::bigint, avg(rank), stddev_samp(rank),
           avg(probability), stddev_samp(probability), avg(confidence), stddev_samp(confidence),
           avg(amount), avg(changed), avg(grey), avg(colours)
    from rows where lens = 'profile' and level <= $last group by all order by all
"""
_PRECISION = "select model, operator, level, map, map50 from precision"
AREA_BY_IMAGE = f"""
    select model, operator, image, {weighted_mean("correct::int")} as value from rows where lens = 'profile'
    group by all having {HAS_CELLS}
"""
_AREAS = f"""
    select model, operator, avg(value), stddev_samp(value), count(*) from ({AREA_BY_IMAGE}) group by all order by all
"""
# images are the sample, so the average over operators is taken within each image first
_AVERAGES = """
    select model, level, count(*), avg(accuracy), stddev_samp(accuracy), avg(rank), stddev_samp(rank), avg(probability),
           stddev_samp(probability), avg(confidence), stddev_samp(confidence)
    from (select model, level, image, avg(correct::int) as accuracy, avg(rank) as rank, avg(probability) as probability,
                 avg(confidence) as confidence
          from rows where lens = 'profile' and list_contains($operators, operator) group by all)
    group by all order by all
"""
_AVERAGE_PRECISION = """
    select model, level, avg(map), avg(map50) from precision where list_contains($operators, operator)
    group by all order by all
"""
_AVERAGE_AREAS = """
    select model, avg(area), stddev_samp(area), count(*) from (
        select model, image, avg(correct::int) as area from rows
        where lens = 'profile' and list_contains($operators, operator) group by all)
    group by all order by all
"""
_SAMPLED_AREAS = f"""
    select model, avg(area), stddev_samp(area), count(*) from (
        select model, image, avg(value) as area from ({AREA_BY_IMAGE})
        where list_contains($operators, operator) group by all)
    group by all order by all
"""


def compute_curves(run: Run) -> dict[Key, list[Point]]:
    """Return the profile of every model and operator, level by level from the clean images on; smoothed, if sampled."""
    return _smoothed_points(run) if run.sampled else _measured_points(run)


def _smoothed_points(run: Run) -> dict[Key, list[Point]]:
    """Return the clean images as measured, and the levels above as smoothed."""
    from brinell.lenses.profile.sampled import estimates, read_looks, smooth_curves  # imports NumPy

    smoothed, looks = smooth_curves(run, METRICS), read_looks(run)
    curves = {}
    for key, points in _measured_points(run, last=0).items():
        if key not in smoothed:
            continue  # a sample of few cells may have none of an operator
        found = {metric: estimates(curve, _most(metric)) for metric, curve in smoothed[key].items()}
        for level in range(1, len(looks[key].images)):
            look = looks[key].values[level]
            metrics: dict[str, Any] = {metric: values[level - 1] for metric, values in found.items()}
            caption = _caption(run, key[1], look, points[0].grey)
            points.append(Point(level, looks[key].images[level], **metrics, **_look(look), caption=caption))
        curves[key] = points
    return curves


def _look(look: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(("amount", "changed", "grey", "colours"), look, strict=True))


def _most(metric: str) -> float:
    """Return the largest value of a metric."""
    return math.inf if metric == "rank" else 1


def _measured_points(run: Run, last: int = STRONGEST) -> dict[Key, list[Point]]:
    """Return the levels up to the last one, each as it was measured."""
    curves: dict[Key, list[Point]] = {}
    precision = {
        (model, operator, level): _without_intervals(values)
        for model, operator, level, *values in _query_precision(run, _PRECISION)
    }
    overlaps = {key: _without_intervals([value], SEGMENTATION_METRICS) for key, value in compute_miou(run).items()}
    for model, operator, level, count, right, *rest in run.query(_CURVES, {"last": last}):
        rank, rank_sd, probability, probability_sd, confidence, confidence_sd, *look = rest
        grey = look[2]
        points = curves.setdefault((model, operator), [])
        clean_grey = points[0].grey if points else grey
        point = Point(
            level=level,
            images=count,
            accuracy=proportion(right, count),
            rank=mean(rank, rank_sd, count),
            probability=mean(probability, probability_sd, count, most=1),
            confidence=mean(confidence, confidence_sd, count, most=1),
            amount=look[0],
            changed=look[1],
            grey=grey,
            colours=look[3],
            caption=_caption(run, operator, look, clean_grey),
            **precision.get((model, operator, level), {}),
            **overlaps.get((model, operator, level), {}),
        )
        points.append(point)
    return curves


def compute_areas(run: Run) -> dict[Key, Estimate]:
    """Return the area under the accuracy profile of every model and operator: the mean accuracy over all levels."""
    return {
        (model, operator): mean(value, deviation, count, most=1)
        for model, operator, value, deviation, count in run.query(_AREAS)
    }


def compute_averages(run: Run, operators: list[str]) -> tuple[dict[str, list[Metrics]], dict[str, Estimate]]:
    """Return each model's metrics at every level and its area, averaged over operators."""
    averages: dict[str, list[Metrics]] = {}
    given = {"operators": operators}
    for model, level, count, *moments in run.query(_AVERAGES, given):
        metrics = {
            metric: mean(moments[2 * index], moments[2 * index + 1], count, most=_most(metric))
            for index, metric in enumerate(METRICS)
        }
        if level == 0 or not run.sampled:
            averages.setdefault(model, []).append(metrics)
    if run.sampled:
        _add_smoothed(run, averages, operators)
        return averages, _means(run, _SAMPLED_AREAS, given)
    for model, level, *values in _query_precision(run, _AVERAGE_PRECISION, given):
        averages[model][level] |= _without_intervals(values)
    for (model, level), value in compute_average_miou(run, operators).items():
        averages[model][level] |= _without_intervals([value], SEGMENTATION_METRICS)
    return averages, _means(run, _AVERAGE_AREAS, given)


def _means(run: Run, sql: str, given: dict[str, Any]) -> dict[str, Estimate]:
    """Return each model's mean share, from its moments."""
    return {model: mean(value, deviation, count, most=1) for model, value, deviation, count in run.query(sql, given)}


def _add_smoothed(run: Run, averages: dict[str, list[Metrics]], operators: list[str]) -> None:
    """Add the levels above the clean images to each model's averages over operators."""
    from brinell.lenses.profile.sampled import average_curves, estimates, smooth_curves  # imports NumPy

    smoothed = smooth_curves(run, METRICS)
    for model, levels in averages.items():
        found = {metric: estimates(average_curves(smoothed, model, operators, metric), _most(metric)) for metric in METRICS}
        levels += [dict(zip(METRICS, each, strict=True)) for each in zip(*found.values(), strict=True)]


def select_averaged(keys: Iterable[Key], white_box: frozenset[str]) -> list[str]:
    """Return the operators to average over: those of every model, without attacks unless there is nothing else."""
    pairs = set(keys)
    models = {model for model, _ in pairs}
    common = sorted({name for _, name in pairs if all((model, name) in pairs for model in models)})
    return [name for name in common if name not in white_box] or common


def find_failure_point(key: Key, points: Sequence[Point], threshold: float) -> FailurePoint:
    """Return where the accuracy of a profile first drops below a threshold."""
    level, earliest, latest = (
        first_below([getattr(point.accuracy, bound) for point in points], threshold) for bound in ("value", "low", "high")
    )
    if level is None:
        return FailurePoint(*key, threshold, None, earliest, latest, "never", None)
    caption = points[level].caption if level else "on clean images"
    return FailurePoint(*key, threshold, level, earliest, latest, caption, points[level].changed if level else 0.0)


def _caption(run: Run, operator: str, look: Sequence[Any], clean_grey: float | None) -> str:
    """Return a level in words, from the means of amount, changed, grey and colours."""
    amount, changed, grey, colours = look
    facts = run.facts(operator)
    share = f"{changed:.0%} of pixels"
    if facts.get("reported_as") == "grey" and grey is not None:
        return f"mean grey {clean_grey:.0f} → {grey:.0f}, {share}"
    if facts.get("reported_as") == "colours" and colours is not None:
        return f"{colours:.0f} colours left ({amount:g} {facts['unit']})"
    text = run.format(operator, amount)
    return text if facts.get("unit") in ("quality", "severity") else f"{text}, {share}"


def _query_precision(run: Run, sql: str, given: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
    """Return rows of the table of average precision, which runs of detectors alone have."""
    return run.query(sql, given) if run.store.exists("precision.parquet") else []


def _without_intervals(values: Sequence[float], metrics: Sequence[str] = DETECTION_METRICS) -> Metrics:
    estimates = (Estimate(value, math.nan, math.nan) for value in values)
    return dict(zip(metrics, estimates, strict=True))
