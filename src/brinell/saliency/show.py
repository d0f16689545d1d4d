"""How saliency shifts are shown: table, charts and report section."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from brinell.report.show import Chart, Context, NamedChart, Namer, Picture, Section, Show, inline
from brinell.runs.run import Run
from brinell.saliency import ANALYSIS
from brinell.saliency.charts import shift_bars
from brinell.saliency.findings import SaliencyFindings
from brinell.saliency.pairs import SaliencyPair, read_pairs


def table(findings: SaliencyFindings) -> list[Any]:
    """Return how often saliency shifts, where the model fails and where it doesn't."""
    shown = Table(title="\nsaliency", title_justify="left", title_style="bold")
    for head in ("model", "change", "fails", "pairs", "shifted", "equal cells", "overlap", "distance"):
        shown.add_column(head, no_wrap=head in ("fails", "pairs", "overlap"))
    for one in findings.shifts:
        shares = [f"{each.value:.0%} ({each.low:.0%}–{each.high:.0%})" for each in (one.shifted, one.equal_shifted)]
        change, failed = findings.titles.get(one.operator, one.operator), "yes" if one.failed else "no"
        means = (f"{one.overlap.value:.2f}", f"{one.distance.value:.3f}")
        shown.add_row(one.model, change, failed, str(one.pairs), *shares, *means)
    tables = [shown] if findings.shifts else []
    return [*tables, *(findings.verdict(model) for model in findings.models)]


def section(context: Context, findings: SaliencyFindings) -> Section:
    """Return how often saliency shifts, and pairs of maps."""
    pairs = read_pairs(context.run)
    pictures = {
        model: [_picture(context.run, findings, pair, context.names[model]) for pair in pairs if pair.model == model]
        for model in findings.models
    }
    return Section(
        template="brinell.saliency:section.html",
        question=ANALYSIS.question,
        topic="saliency",
        findings=findings,
        options=findings.options,
        charts=charts(findings),
        content={"pairs": {model: own for model, own in pictures.items() if own}},
    )


def charts(findings: SaliencyFindings) -> dict[str, Chart]:
    """Return the shares of pairs whose saliency shifts, by both rules."""
    if not findings.shifts:
        return {}
    return {
        "saliency-shifted": shift_bars(findings),
        "saliency-equal-cells": shift_bars(findings, equal_cells=True),
    }


def _picture(run: Run, findings: SaliencyFindings, pair: SaliencyPair, name: Namer) -> Picture:
    lines = (
        f"clean: {name(pair.label)}",
        f"changed: {name(pair.prediction)}",
        f"overlap of hot pixels: {pair.overlap:.2f}",
    )
    return Picture(inline(run, pair.file), findings.titles.get(pair.operator, pair.operator), lines, False)


SHOW = Show(table=table, section=section, charts=charts, named={"saliency-shifted": NamedChart(shift_bars)})
