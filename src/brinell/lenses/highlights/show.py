"""How the findings of the highlights lens are shown: table, charts and report section."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from brinell.lenses.highlights import LENS
from brinell.lenses.highlights.findings import HighlightFindings
from brinell.lenses.highlights.glare import LEAST, sigma_names
from brinell.report.exhibits import pairs
from brinell.report.show import Chart, Context, NamedChart, Section, Show, lazy_chart

accuracy_bars = lazy_chart("brinell.lenses.highlights.charts:accuracy_bars")
cell_map = lazy_chart("brinell.lenses.highlights.charts:cell_map")
location_bars = lazy_chart("brinell.lenses.highlights.charts:location_bars")
size_bars = lazy_chart("brinell.lenses.highlights.charts:size_bars")


def table(findings: HighlightFindings) -> list[Any]:
    """Return accuracy with and without spots of light, by how many variants may fail, and the least light."""
    shown: list[Any] = []
    for operator in findings.grids:
        shown += [_grid_table(findings, operator), "* over images whose original is right"]
    if findings.least:
        shown.append(_search_table(findings))
    return [*shown, *(findings.verdict(model) for model in findings.models)]


def _grid_table(findings: HighlightFindings, operator: str) -> Table:
    results = findings.of_grid(operator)
    counts = list(results[0].at_least)
    grid = Table(title=f"\n{findings.titles.get(operator, operator)}", title_justify="left", title_style="bold")
    for head in ("model", "top-1", "S-average", *(f"S ≥ {k}" for k in counts), *(f"S ≥ {k}*" for k in counts)):
        grid.add_column(head)
    grid.add_column("failing", no_wrap=True)
    for one in results:
        figures = [one.top1, one.average, *one.at_least.values(), *one.over_right.values()]
        shares = (f"{each.value:.1%}\n{100 * each.low:.0f}–{100 * each.high:.0f}" for each in figures)
        grid.add_row(one.model, *shares, f"{one.failing} of\n{one.failing_images} images")
    return grid


def _search_table(findings: HighlightFindings) -> Table:
    title = findings.titles.get(LEAST, LEAST)
    search = Table(title=f"\n{title} that breaks an image", title_justify="left", title_style="bold")
    heads = ("model", "mean light, grey levels (95 %)", "median", "broken / survived / skipped / failed", "queries")
    for head in heads:
        search.add_column(head)
    for one in findings.least.values():
        light = f"{one.light.value:.2g} ({one.light.low:.2g}–{one.light.high:.2g})" if one.broken else "–"
        median = "–" if one.median is None else f"{one.median:.2g}"
        counts = " / ".join(map(str, (one.broken, one.survived, one.skipped, one.failed)))
        search.add_row(one.model, light, median, counts, f"{one.queries:.0f}")
    return search


def section(context: Context, findings: HighlightFindings) -> Section:
    """Return accuracies, sizes, locations and the images that break with the least light."""
    return Section(
        template="brinell.lenses.highlights:section.html",
        question=LENS.question,
        topic="highlights",
        findings=findings,
        options=context.options,
        charts=_grid_charts(findings, findings.grids[0]) if findings.grids else {},
        content={
            "breakers": pairs(context, "highlights", findings),
            "sigmas": sigma_names(context.run, context.options),
        },
    )


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
    section=section,
    charts=charts,
    named={
        "highlight-accuracy": NamedChart(accuracy_bars, {"operator": _grids_of}),
        "highlight-sizes": NamedChart(size_bars, {"operator": _grids_of}),
        "highlight-cells": NamedChart(cell_map, {"operator": _grids_of}),
        "highlight-location": NamedChart(location_bars, {"operator": _grids_of}),
    },
)
