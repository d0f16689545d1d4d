"""How saliency shifts are shown: table, charts and report section."""

from __future__ import annotations

from typing import Any

from brinell.report.grid import Grid
from brinell.report.show import Chart, NamedChart, Show, lazy_chart
from brinell.runs.words import format_share
from brinell.saliency.findings import SaliencyFindings
from brinell.saliency.section import make_section

shift_bars = lazy_chart("brinell.saliency.charts:shift_bars")


def table(findings: SaliencyFindings) -> list[Any]:
    """Return how often saliency shifts, where the model fails and where it doesn't."""
    shown: list[Any] = []
    heads = ("change", "model", "pairs", "shifted", "equal cells", "overlap", "distance")
    for model in findings.models:
        rows = []
        for one in findings.of(model):
            shares = (format_share(rate).replace(" ", "\n") for rate in (one.shifted, one.equal_shifted))
            outcome = "fails" if one.failed else "holds"
            means = (f"{one.overlap.value:.2f}", f"{one.distance.value:.3f}")
            rows.append((findings.titles.get(one.operator, one.operator), outcome, str(one.pairs), *shares, *means))
        if rows:
            shown.append(Grid(heads, tuple(rows), f"saliency of {model}", left=frozenset({0, 1})))
        shown.append(findings.verdict(model))
    return shown


def charts(findings: SaliencyFindings) -> dict[str, Chart]:
    """Return the shares of pairs whose saliency shifts, by both rules."""
    if not findings.shifts:
        return {}
    return {
        "saliency-shifted": shift_bars(findings),
        "saliency-equal-cells": shift_bars(findings, equal_cells=True),
    }


SHOW = Show(table=table, section=make_section, charts=charts, named={"saliency-shifted": NamedChart(shift_bars)})
