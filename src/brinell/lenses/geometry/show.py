"""How the geometry lens's findings are shown: the table, the charts and the report's section."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from brinell.lenses.geometry import LENS
from brinell.lenses.geometry.charts import coordinate_shares, invariance_bars, misclassification, random_bars
from brinell.lenses.geometry.findings import GeometryFindings
from brinell.report.exhibits import pairs
from brinell.report.show import Chart, Context, NamedChart, Section, Show


def table(findings: GeometryFindings) -> list[Any]:
    """Return a table per model: the smallest motions of every group and method, and what random motions do."""
    lines: list[Any] = []
    for model in findings.models:
        rows = Table(title=f"\n{model}", title_justify="left", title_style="bold")
        for head in ("group", "mean score (95 %)", "fooled / not / skipped", "seconds", "queries", "gradients"):
            rows.add_column(head, no_wrap=head == "group", overflow="fold")
        for operator in findings.operators:
            one = findings.smallest.get((model, operator))
            if one is not None:
                counts = f"{one.fooled} / {one.failed + one.no_answer} / {one.skipped}"
                interval = f" ({one.score.low:.2f}–{one.score.high:.2f})" if one.fooled > 1 else ""
                score = f"{one.score.value:.2f}{interval}" if one.fooled else "never fooled"
                costs = (f"{one.seconds:.2f}", f"{one.queries:.0f}", f"{one.gradients:.0f}")
                rows.add_row(findings.title(operator), score, counts, *costs)
            elif (model, operator) in findings.rates:
                reached = findings.threshold_score(model, operator)
                where = "none tried" if reached is None else f"{reached:.2f}"
                rows.add_row(findings.title(operator), f"{findings.threshold:.0%} changed at {where}", "", "", "", "")
        lines.append(rows)
        lines += [
            f"{findings.title(one.operator)}: {one.retry_note}."
            for one in findings.smallest.values()
            if one.model == model and one.by_retry
        ]
        lines.append(findings.verdict(model))
    return lines


def charts(findings: GeometryFindings) -> dict[str, Chart]:
    """Return the charts that the run has rows for."""
    drawn: dict[str, Chart] = {}
    if any(one.fooled for one in findings.smallest.values()):
        drawn |= {"invariance": invariance_bars(findings), "generators": coordinate_shares(findings)}
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
        content={"breakers": pairs(context, LENS.name, findings), "label_changes": label_changes},
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
