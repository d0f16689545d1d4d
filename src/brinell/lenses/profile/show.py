"""How the findings of the profile lens are shown."""

from __future__ import annotations

from typing import Any

from brinell.lenses.profile.corruption_table import make_corruption_tables
from brinell.lenses.profile.curves import FailurePoint
from brinell.lenses.profile.findings import ProfileFindings
from brinell.lenses.profile.overall_table import make_overall_tables
from brinell.lenses.profile.section import make_section
from brinell.lenses.profile.slice_table import make_slice_tables
from brinell.lenses.reader import AVERAGE
from brinell.report.grid import Grid
from brinell.report.show import Chart, NamedChart, Show, lazy_chart, models_of
from brinell.runs.words import format_share

area_bars = lazy_chart("brinell.lenses.profile.charts:area_bars")
average_profiles = lazy_chart("brinell.lenses.profile.charts:average_profiles")
operator_grid = lazy_chart("brinell.lenses.profile.charts:operator_grid")
operator_profiles = lazy_chart("brinell.lenses.profile.charts:operator_profiles")


def make_tables(findings: ProfileFindings) -> list[Any]:
    """Return a table of areas and failure points for each model, and its verdict."""
    tables: list[Any] = []
    thresholds = list(dict.fromkeys(failure.threshold for failure in findings.failure_points))
    for model in findings.models:
        tables += [_table(findings, model, thresholds), findings.verdict(model)]
    return [*tables, *make_overall_tables(findings), *make_corruption_tables(findings), *make_slice_tables(findings)]


def _table(findings: ProfileFindings, model: str, thresholds: list[float]) -> Grid:
    metric, name = ("miou", "mIoU") if findings.precision(model, "miou") is not None else ("map", "mAP")
    precision = findings.precision(model, metric)
    middle = thresholds[len(thresholds) // 2]
    heads = ["operator", "mean accuracy [95 %]", *([f"mean {name}"] if precision is not None else [])]
    heads += [f"< {threshold:.0%}" for threshold in thresholds]
    rows: list[tuple[str, ...]] = []
    for operator in findings.operators:
        if (model, operator) not in findings.areas:
            continue
        failures = [findings.failure_point(model, operator, threshold) for threshold in thresholds]
        cells = [findings.title(operator), format_share(findings.areas[model, operator])]
        if precision is not None:
            points = [getattr(point, metric) for point in findings.curves[model, operator]]
            values = [point.value for point in points if point is not None]
            cells.append(f"{sum(values) / len(values):.1%}" if values else "")
        cells += [_format_failure(failure, findings.smoothed) for failure in failures]
        rows.append((*cells, failures[len(failures) // 2].caption))
    if len(rows) > 1:
        average = [AVERAGE, format_share(findings.average_areas[model])]
        average += [f"{precision[1]:.1%}"] if precision is not None else []
        rows.insert(0, (*average, *[""] * (len(thresholds) + 1)))
    heads.append(f"drops below {middle:.0%} at")
    note = f"Mean over all levels; levels at which accuracy drops below {', '.join(f'{each:.0%}' for each in thresholds)}."
    note += " Levels are smoothed, from a sample of each image's levels." if findings.smoothed else ""
    return Grid(tuple(heads), tuple(rows), model, note, frozenset({0, len(heads) - 1}))


def _format_failure(failure: FailurePoint, interval: bool) -> str:
    """Return the level of a failure point: "12", "12 [10–15]" or "never"."""
    level = "never" if failure.level is None else str(failure.level)
    if not interval or failure.earliest is None or failure.earliest == failure.latest:
        return level
    return f"{level} [{failure.earliest}–{'' if failure.latest is None else failure.latest}]"


def make_charts(findings: ProfileFindings) -> dict[str, Chart]:
    """Return all charts: averages, areas, and each model's operators, for every metric."""
    charts = {f"average-{metric}": average_profiles(findings, metric) for metric in findings.metrics}
    charts["areas"] = area_bars(findings)
    for model in findings.models:
        for metric in findings.metrics:
            charts[f"{model}-{metric}"] = operator_profiles(findings, model, metric)
    return charts


def _metrics_of(findings: ProfileFindings) -> list[str]:
    return list(findings.metrics)


SHOW = Show(
    table=make_tables,
    section=make_section,
    charts=make_charts,
    named={
        "average": NamedChart(average_profiles, {"metric": _metrics_of}),
        "operators": NamedChart(operator_profiles, {"model": models_of, "metric": _metrics_of}),
        "panels": NamedChart(operator_grid),
        "areas": NamedChart(area_bars),
    },
)
