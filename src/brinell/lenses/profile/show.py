"""How the findings of the profile lens are shown."""

from __future__ import annotations

from typing import Any

from brinell.lenses.profile import LENS
from brinell.lenses.profile.findings import ProfileFindings
from brinell.lenses.reader import AVERAGE
from brinell.report.exhibits import Exhibit, describe_changed, describe_clean, pairs, read_exhibits
from brinell.report.grid import Grid
from brinell.report.show import (
    Chart,
    Context,
    NamedChart,
    Picture,
    Section,
    Show,
    inline,
    lazy_chart,
    models_of,
)
from brinell.runs.statistics import THRESHOLDS
from brinell.runs.words import format_share

Sheets = list[tuple[str, list[tuple[float, list[Picture]]]]]  # by model and threshold

area_bars = lazy_chart("brinell.lenses.profile.charts:area_bars")
average_profiles = lazy_chart("brinell.lenses.profile.charts:average_profiles")
operator_profiles = lazy_chart("brinell.lenses.profile.charts:operator_profiles")


def make_tables(findings: ProfileFindings) -> list[Any]:
    """Return a table of areas and failure points for each model, and its verdict."""
    tables: list[Any] = []
    thresholds = list(dict.fromkeys(failure.threshold for failure in findings.failure_points))
    for model in findings.models:
        tables += [_table(findings, model, thresholds), findings.verdict(model)]
    return tables


def _table(findings: ProfileFindings, model: str, thresholds: list[float]) -> Grid:
    precision = findings.precision(model)
    middle = thresholds[len(thresholds) // 2]
    heads = ["operator", "mean accuracy [95 %]", *(["mean mAP"] if precision is not None else [])]
    heads += [f"< {threshold:.0%}" for threshold in thresholds]
    rows: list[tuple[str, ...]] = []
    for operator in findings.operators:
        if (model, operator) not in findings.areas:
            continue
        failures = [findings.failure_point(model, operator, threshold) for threshold in thresholds]
        cells = [findings.title(operator), format_share(findings.areas[model, operator])]
        if precision is not None:
            maps = [point.map.value for point in findings.curves[model, operator] if point.map is not None]
            cells.append(f"{sum(maps) / len(maps):.1%}" if maps else "")
        cells += ["never" if failure.level is None else str(failure.level) for failure in failures]
        rows.append((*cells, failures[len(failures) // 2].caption))
    if len(rows) > 1:
        average = [AVERAGE, format_share(findings.average_areas[model])]
        average += [f"{precision[1]:.1%}"] if precision is not None else []
        rows.insert(0, (*average, *[""] * (len(thresholds) + 1)))
    heads.append(f"drops below {middle:.0%} at")
    note = f"Mean over all levels; levels at which accuracy drops below {', '.join(f'{each:.0%}' for each in thresholds)}."
    return Grid(tuple(heads), tuple(rows), model, note, frozenset({0, len(heads) - 1}))


def make_section(context: Context, findings: ProfileFindings) -> Section:
    """Return the section: curves, what failure looks like, and failure points."""
    return Section(
        template="brinell.lenses.profile:section.html",
        question=LENS.question,
        topic="degradation profiles",
        findings=findings,
        options=context.options,
        charts={
            "average": average_profiles(findings),
            "operators": operator_profiles(findings),
            "areas": area_bars(findings),
        },
        content={
            "thresholds": THRESHOLDS,
            "sheets": _sheets(context, findings),
            "breakers": pairs(context, LENS.name, findings),
            "levels": max(len(points) for points in findings.curves.values()) - 1,
        },
    )


def make_charts(findings: ProfileFindings) -> dict[str, Chart]:
    """Return all charts: averages, areas, and each model's operators, for every metric."""
    charts = {f"average-{metric}": average_profiles(findings, metric) for metric in findings.metrics}
    charts["areas"] = area_bars(findings)
    for model in findings.models:
        for metric in findings.metrics:
            charts[f"{model}-{metric}"] = operator_profiles(findings, model, metric)
    return charts


def _sheets(context: Context, findings: ProfileFindings) -> Sheets:
    """Return, for each model and threshold, the example image at every operator's failure point (Figs. 7-9)."""
    sheets = []
    exhibits = read_exhibits(context.run, LENS.name)
    for model in findings.models:
        by_threshold = []
        for threshold in THRESHOLDS:
            shown = [exhibit for exhibit in exhibits if (exhibit.model, exhibit.group) == (model, threshold)]
            shown.sort(key=lambda exhibit: exhibit.level)
            pictures = []
            for exhibit in shown:
                answer = describe_changed(exhibit, context.names[model])
                source, title = inline(context.run, exhibit.file, exhibit.marks), findings.title(exhibit.operator)
                lines = tuple(line for line in (exhibit.caption, answer, exhibit.reason) if line)
                pictures.append(Picture(source, title, lines, exhibit.correct, boxed=exhibit.boxed))
            by_threshold.append((threshold, _clean_picture(context, shown) + pictures))
        if any(pictures for _, pictures in by_threshold):
            sheets.append((model, by_threshold))
    return sheets


def _clean_picture(context: Context, shown: list[Exhibit]) -> list[Picture]:
    """Return the clean example with a detector's boxes, which those in the changed pictures are compared with."""
    if not shown or not shown[0].boxed:
        return []
    first = shown[0]
    source = inline(context.run, first.clean_file, first.clean_marks)
    return [Picture(source, "clean", (describe_clean(first, context.names[first.model]),), True, boxed=True)]


def _metrics_of(findings: ProfileFindings) -> list[str]:
    return list(findings.metrics)


SHOW = Show(
    table=make_tables,
    section=make_section,
    charts=make_charts,
    named={
        "average": NamedChart(average_profiles, {"metric": _metrics_of}),
        "operators": NamedChart(operator_profiles, {"model": models_of, "metric": _metrics_of}),
        "areas": NamedChart(area_bars),
    },
)
