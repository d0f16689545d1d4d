"""How the geometry lens's findings are shown: the table, the charts and the report's section."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from brinell.lenses.geometry import LENS
from brinell.lenses.geometry.findings import GeometryFindings
from brinell.lenses.geometry.rows import SCORE_LIMIT
from brinell.report.exhibits import pairs
from brinell.report.show import Chart, Context, NamedChart, Section, Show, lazy_chart

coordinate_shares = lazy_chart("brinell.lenses.geometry.charts:coordinate_shares")
invariance_bars = lazy_chart("brinell.lenses.geometry.charts:invariance_bars")
misclassification = lazy_chart("brinell.lenses.geometry.charts:misclassification")
random_bars = lazy_chart("brinell.lenses.geometry.charts:random_bars")


def table(findings: GeometryFindings) -> list[Any]:
    """Return the tables of each model: the smallest motions by group and method, and what random motions do."""
    lines: list[Any] = []
    for model in findings.models:
        tables = [_smallest_table(findings, model), _random_table(findings, model)]
        lines += [Text(f"\n{model}", style="bold"), *(one for one in tables if one.row_count)]
        lines += [
            f"{findings.title(one.operator)}: {note}."
            for one in findings.smallest.values()
            for note in (one.retry_note, one.edge_note)
            if one.model == model and note
        ]
        lines.append(findings.verdict(model))
    return lines


def _smallest_table(findings: GeometryFindings, model: str) -> Table:
    rows = Table(box=box.SIMPLE_HEAD)
    mean = f"mean up to {SCORE_LIMIT:g} (95 %)"
    for head in ("smallest motions", mean, "fooled", "ρ̂", "s", "queries", "gradients"):
        rows.add_column(head, justify="left" if head == "smallest motions" else "right")
    for operator in findings.operators:
        one = findings.smallest.get((model, operator))
        if one is not None:
            interval = f" ({one.restricted_mean.low:.2f}–{one.restricted_mean.high:.2f})" if one.images > 1 else ""
            score = f"{one.restricted_mean.value:.2f}{interval}" if one.images else "–"
            published = f"{one.rho_hat.value:.2f}" if one.fooled else "–"
            costs = (f"{one.seconds:.2f}", f"{one.queries:.0f}", f"{one.gradients:.0f}")
            rows.add_row(findings.title(operator), score, f"{one.fooled} of {one.images}", published, *costs)
    return rows


def _random_table(findings: GeometryFindings, model: str) -> Table:
    rows = Table(box=box.SIMPLE_HEAD)
    rows.add_column("random motions")
    rows.add_column(f"score at which {findings.threshold:.0%} change the label", justify="right")
    for operator in findings.operators:
        if (model, operator) in findings.rates:
            score = findings.threshold_score(model, operator)
            rows.add_row(findings.title(operator), "not reached" if score is None else f"{score:.2f}")
    return rows


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


def section(context: Context, findings: GeometryFindings) -> Section:
    """Return the report's section: the smallest motions as pictures, scores and costs, and random motions."""
    label_changes = [
        {**change, "before": name(change["from"]), "after": name(change["to"])}
        for change in findings.label_changes
        for name in [context.names[change["model"]]]
    ]
    options = dict(context.options)
    if findings.against == "answer":
        options["criterion"] = "another label than on the clean image"
    return Section(
        template="brinell.lenses.geometry:section.html",
        question=LENS.question,
        topic="smallest motions",
        findings=findings,
        options=options,
        charts=charts(findings),
        content={
            "breakers": pairs(context, LENS.name, findings),
            "label_changes": label_changes,
            "score_limit": SCORE_LIMIT,
        },
    )


SHOW = Show(
    table=table,
    section=section,
    charts=charts,
    named={
        "invariance": NamedChart(invariance_bars),
        "generators": NamedChart(coordinate_shares),
        "misclassification": NamedChart(misclassification),
        "random": NamedChart(random_bars),
    },
)
