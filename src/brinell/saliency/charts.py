"""The chart of saliency shifts."""

from __future__ import annotations

import math
from typing import Any

import altair as alt

from brinell.report.charts import Chart, inline_data, tooltips
from brinell.report.panels import PANEL_WIDTH
from brinell.runs.words import format_share
from brinell.saliency.findings import SaliencyFindings

OUTCOMES = {"fails": "#c0392b", "does not fail": "#9aa5b1"}


def shift_panels(findings: SaliencyFindings) -> list[Chart]:
    """Return a small chart for each change: how often saliency shifts, where the model fails and where it does not."""
    panels = []
    for operator in findings.operators:
        records = [
            {
                "model": one.model,
                "outcome": list(OUTCOMES)[not one.failed],
                **vars(one.equal_shifted),
                "text": f"{one.model}, {list(OUTCOMES)[not one.failed]}: {format_share(one.equal_shifted)} of "
                "{one.pairs} pairs",
            }
            for one in findings.shifts
            if one.operator == operator and one.pairs and not math.isnan(one.equal_shifted.value)
        ]
        if records:
            title = alt.TitleParams(findings.titles.get(operator, operator), limit=PANEL_WIDTH + 40)
            panels.append(_bars(records, findings.models).properties(width=PANEL_WIDTH, height=alt.Step(14), title=title))
    return panels


def _bars(records: list[dict[str, Any]], models: list[str]) -> Chart:
    base = alt.Chart(inline_data(records)).encode(
        y=alt.Y("model:N", sort=models, title=None, axis=alt.Axis(labelLimit=110)),
        yOffset=alt.YOffset("outcome:N", sort=list(OUTCOMES)),
        description="text:N",
    )
    axis = alt.Axis(format="%", tickCount=3)
    scale = alt.Scale(domain=list(OUTCOMES), range=list(OUTCOMES.values()))
    bar = base.mark_bar(height=11).encode(
        x=alt.X("value:Q", scale=alt.Scale(domain=[0, 1]), axis=axis, title="pairs that shift"),
        color=alt.Color("outcome:N", scale=scale, title="the model"),
    )
    return alt.layer(bar, base.mark_rule(strokeWidth=1.5).encode(x="low:Q", x2="high:Q"))


def shift_bars(findings: SaliencyFindings, *, equal_cells: bool = False) -> Chart:
    """Draw how often saliency shifts, where the model fails and where it does not (the paper's Fig. 10)."""
    outcomes = ["fails", "does not fail"]
    records = []
    for one in findings.shifts:
        rate = one.equal_shifted if equal_cells else one.shifted
        if one.pairs and not math.isnan(rate.value):
            change, outcome = findings.titles.get(one.operator, one.operator), outcomes[not one.failed]
            records.append({"model": one.model, "change": change, "outcome": outcome, "pairs": one.pairs, **vars(rate)})
    base = alt.Chart(inline_data(records)).encode(
        y=alt.Y("model:N", sort=findings.models, title=None, axis=alt.Axis(labelLimit=240)),
        yOffset=alt.YOffset("outcome:N", sort=outcomes),
        tooltip=["model:N", "change:N", "outcome:N", *tooltips("value", "low", "high", number=".0%"), "pairs:Q"],
    )
    title = "share of pairs whose hottest cell changes" + (" (equal cells)" if equal_cells else "")
    bar = base.mark_bar(height=12).encode(
        x=alt.X("value:Q", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%"), title=title),
        color=alt.Color("outcome:N", sort=outcomes, scale=alt.Scale(range=["#c0392b", "#9aa5b1"]), title="the model"),
    )
    interval = base.mark_rule(strokeWidth=1.5).encode(x="low:Q", x2="high:Q")
    layers = alt.layer(bar, interval).properties(width=520, height=alt.Step(14))
    return layers.facet(alt.Facet("change:N", title=None), columns=1)
