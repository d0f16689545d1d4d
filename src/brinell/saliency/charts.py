"""The chart of saliency shifts."""

from __future__ import annotations

import math

import altair as alt

from brinell.report.charts import Chart, inline_data, tooltips
from brinell.saliency.findings import SaliencyFindings


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
