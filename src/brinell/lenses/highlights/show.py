"""How the findings of the highlights lens are shown: table, charts and report section."""

from __future__ import annotations

from typing import Any

from brinell.lenses.highlights.findings import HighlightFindings
from brinell.lenses.highlights.glare import LEAST
from brinell.lenses.highlights.section import make_section
from brinell.report.grid import Grid
from brinell.report.show import Chart, NamedChart, Show, lazy_chart
from brinell.runs.words import format_mean, format_share

accuracy_bars = lazy_chart("brinell.lenses.highlights.charts:accuracy_bars")
cell_map = lazy_chart("brinell.lenses.highlights.charts:cell_map")
location_bars = lazy_chart("brinell.lenses.highlights.charts:location_bars")
size_bars = lazy_chart("brinell.lenses.highlights.charts:size_bars")


def table(findings: HighlightFindings) -> list[Any]:
    """Return accuracy with and without spots of light, by how many variants may fail, and the least light."""
    shown: list[Any] = [_grid_table(findings, operator) for operator in findings.grids]
    if findings.least:
        shown.append(_search_table(findings))
    return [*shown, *(findings.verdict(model) for model in findings.models)]


def _grid_table(findings: HighlightFindings, operator: str) -> Grid:
    results = findings.of_grid(operator)
    counts = list(results[0].at_least)
    heads = ("model", "top-1", "S-average", *(f"S ≥ {k}" for k in counts), *(f"S ≥ {k}*" for k in counts), "failing")
    rows = []
    for one in results:
        figures = [one.top1, one.average, *one.at_least.values(), *one.over_right.values()]
        failing = "–" if one.sampled else f"{one.failing} in {one.failing_images} images"
        rows.append((one.model, *(format_share(each).replace(" ", "\n") for each in figures), failing))
    note = "S ≥ k: an image fails once k of its variants do. * over images whose original is right."
    note += " Not from a sample of an image's spots: S ≥ k and failing." if results[0].sampled else ""
    return Grid(heads, tuple(rows), findings.titles.get(operator, operator), note)


def _search_table(findings: HighlightFindings) -> Grid:
    title = f"{findings.titles.get(LEAST, LEAST)} that breaks an image"
    heads = ("model", "mean light, grey levels [95 %]", "median", "broken / survived / skipped / failed", "queries")
    rows = []
    for one in findings.least.values():
        median = "–" if one.median is None else f"{one.median:.2g}"
        counts = " / ".join(map(str, (one.broken, one.survived, one.skipped, one.failed)))
        rows.append((one.model, format_mean(one.light), median, counts, f"{one.queries:.0f}"))
    return Grid(heads, tuple(rows), title)


def charts(findings: HighlightFindings) -> dict[str, Chart]:
    """Return all charts, for each grid."""
    return {
        f"{name}-{operator.replace(':', '-')}": chart
        for operator in findings.grids
        for name, chart in _grid_charts(findings, operator).items()
    }


def _grid_charts(findings: HighlightFindings, operator: str) -> dict[str, Chart]:
    located = any(one.location is not None and one.failing for one in findings.of_grid(operator))
    return {
        "highlight-accuracy": accuracy_bars(findings, operator),
        "highlight-sizes": size_bars(findings, operator),
        "highlight-cells": cell_map(findings, operator),
        **({"highlight-location": location_bars(findings, operator)} if located else {}),
    }


def _grids_of(findings: Any) -> list[str]:
    return list(findings.grids)


SHOW = Show(
    table=table,
    section=make_section,
    charts=charts,
    named={
        "highlight-accuracy": NamedChart(accuracy_bars, {"operator": _grids_of}),
        "highlight-sizes": NamedChart(size_bars, {"operator": _grids_of}),
        "highlight-cells": NamedChart(cell_map, {"operator": _grids_of}),
        "highlight-location": NamedChart(location_bars, {"operator": _grids_of}),
    },
    late=("brinell.lenses.highlights.charts",),
)
