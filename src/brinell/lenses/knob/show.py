"""How the findings of the knob lens are shown."""

from __future__ import annotations

from typing import Any

from brinell.lenses.knob.breaks import Hardness
from brinell.lenses.knob.findings import KnobFindings
from brinell.lenses.knob.section import make_section
from brinell.report.grid import Grid
from brinell.report.show import Chart, NamedChart, Show, lazy_chart, operators_of
from brinell.runs.words import format_mean

breaking_ranges = lazy_chart("brinell.lenses.knob.charts:breaking_ranges")
fooling_bars = lazy_chart("brinell.lenses.knob.charts:fooling_bars")
robustness_bars = lazy_chart("brinell.lenses.knob.charts:robustness_bars")
threshold_curves = lazy_chart("brinell.lenses.knob.charts:threshold_curves")


def make_tables(findings: KnobFindings) -> list[Any]:
    """Return a table of smallest breaking changes for each model, and its verdict."""
    tables: list[Any] = []
    for model in findings.models:
        tables += [_table(findings, model), findings.verdict(model)]
    if any(findings.best_model(operator) for operator in findings.operators):
        tables.append("* clearly the most robust model under this property")
    if findings.search == "bracket":
        tables.append("Found by bracketing: where a model recovers as the change grows, a smaller change may break it.")
    if findings.rounding == "none":
        tables.append("Images were queried in floats, without rounding to whole grey levels.")
    return tables


def _table(findings: KnobFindings, model: str) -> Grid:
    heads = ("property", f"mean {findings.distance} [95 %]", "half broken at", "broken / survived / skipped / failed")
    rows = []
    for operator in findings.operators:
        one = findings.hardness.get((model, operator))
        if one is not None:
            best = " *" if findings.best_model(operator) == model else ""
            counts = " / ".join(map(str, (one.broken, one.survived, one.skipped, one.failed)))
            rows.append((findings.title(operator), _format_robustness(one) + best, one.half_broken_at, counts))
    return Grid(heads, tuple(rows), model, left=frozenset({0, 1, 2}))


def _format_robustness(one: Hardness) -> str:
    """Return the mean smallest breaking change, with its interval if there is one."""
    if not one.broken:
        return "never broken" if one.tested else "–"
    return format_mean(one.robustness)


def make_charts(findings: KnobFindings) -> dict[str, Chart]:
    """Return all charts: robustness, fooling rates, and each property's curve and ranges."""
    charts = {"robustness": robustness_bars(findings), "fooling": fooling_bars(findings)}
    for operator in findings.operators:
        name = operator.replace(":", "-")
        charts[f"thresholds-{name}"] = threshold_curves(findings, operator)
        charts[f"ranges-{name}"] = breaking_ranges(findings, operator)
    return charts


SHOW = Show(
    table=make_tables,
    section=make_section,
    charts=make_charts,
    named={
        "robustness": NamedChart(robustness_bars),
        "thresholds": NamedChart(threshold_curves, {"operator": operators_of}),
        "fooling": NamedChart(fooling_bars),
        "ranges": NamedChart(breaking_ranges, {"operator": operators_of}),
    },
    late=("brinell.lenses.knob.charts",),
)
