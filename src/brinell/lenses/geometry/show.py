"""How the geometry lens's findings are shown: the table, the charts and the report's section."""

from __future__ import annotations

from typing import Any

from brinell.lenses.geometry.findings import GeometryFindings
from brinell.lenses.geometry.rows import SCORE_LIMIT
from brinell.lenses.geometry.section import make_section
from brinell.report.grid import Grid
from brinell.report.show import Chart, NamedChart, Show, lazy_chart
from brinell.runs.words import format_mean

coordinate_shares = lazy_chart("brinell.lenses.geometry.charts:coordinate_shares")
invariance_bars = lazy_chart("brinell.lenses.geometry.charts:invariance_bars")
misclassification = lazy_chart("brinell.lenses.geometry.charts:misclassification")
random_bars = lazy_chart("brinell.lenses.geometry.charts:random_bars")


def table(findings: GeometryFindings) -> list[Any]:
    """Return the tables of each model: the smallest motions by group and method, and what random motions do."""
    lines: list[Any] = []
    for model in findings.models:
        tables = [_smallest_table(findings, model), _random_table(findings, model)]
        lines += [one for one in tables if one.rows]
        lines += [
            f"{findings.title(one.operator)}: {note}."
            for one in findings.smallest.values()
            for note in (one.retry_note, one.edge_note)
            if one.model == model and note
        ]
        lines.append(findings.verdict(model))
    return lines


def _smallest_table(findings: GeometryFindings, model: str) -> Grid:
    heads = ("smallest motions", "mean score [95 %]", "fooled", "rho-hat", "seconds", "queries")
    rows = []
    for operator in findings.operators:
        one = findings.smallest.get((model, operator))
        if one is not None:
            score = format_mean(one.restricted_mean, ".2f") if one.images else "–"
            published = f"{one.rho_hat.value:.2f}" if one.fooled else "–"
            costs = (f"{one.seconds:.2f}", f"{one.queries:.0f}")
            rows.append((findings.title(operator), score, f"{one.fooled} of {one.images}", published, *costs))
    note = (
        f"Scores above {SCORE_LIMIT:g} and images that are not fooled count as {SCORE_LIMIT:g}; rho-hat is the mean of "
        "fooled images alone. Seconds and queries are per image."
    )
    return Grid(heads, tuple(rows), model, note=note)


def _random_table(findings: GeometryFindings, model: str) -> Grid:
    heads = ("random motions", f"score at which {findings.threshold:.0%} change the label [95 %]")
    own = [operator for operator in findings.operators if (model, operator) in findings.rates]
    rows = [(findings.title(operator), findings.describe_threshold(model, operator)) for operator in own]
    return Grid(heads, tuple(rows), "" if any(owner == model for owner, _ in findings.smallest) else model)


def charts(findings: GeometryFindings) -> dict[str, Chart]:
    """Return the charts that the run has rows for."""
    drawn: dict[str, Chart] = {}
    if any(one.images for one in findings.smallest.values()):
        drawn["invariance"] = invariance_bars(findings)
    if findings.shares:
        drawn["generators"] = coordinate_shares(findings)
    if findings.rates:
        drawn |= {"misclassification": misclassification(findings), "random": random_bars(findings)}
    return drawn


SHOW = Show(
    table=table,
    section=make_section,
    charts=charts,
    named={
        "invariance": NamedChart(invariance_bars),
        "generators": NamedChart(coordinate_shares),
        "misclassification": NamedChart(misclassification),
        "random": NamedChart(random_bars),
    },
    late=("brinell.lenses.geometry.charts",),
)
