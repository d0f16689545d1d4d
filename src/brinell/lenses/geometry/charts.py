"""Figures of motions that change a label, as Altair charts."""

from __future__ import annotations

from typing import Any

import altair as alt

from brinell.lenses.geometry.findings import Motions
from brinell.lenses.profile.charts import PALETTE, Figure
from brinell.motion.names import GROUP_FACTS
from brinell.runs.names import title


def invariance_bars(found: Motions) -> Figure:
    """The mean geodesic score of the smallest motions, ρ̂, by group, method and model (the paper's Fig. 7, left)."""
    records = [
        {
            "model": one.model,
            "group": title(one.operator),
            "value": one.score.value,
            **_interval(one.score.low, one.score.high),
            "images": one.fooled,
        }
        for one in found.smallest.values()
        if one.fooled
    ]
    return _bars(found, records, "mean geodesic score of the smallest motion (ρ̂)")


def random_bars(found: Motions) -> Figure:
    """The score at which random motions change as many labels as the threshold says, r̂ (Fig. 7, right)."""
    records = []
    for model, operator in found.rates:
        middle = found.middle(model, operator)
        if middle is not None:
            records.append({"model": model, "group": title(operator), "value": middle})
    return _bars(found, records, f"score at which {found.threshold:.0%} of random motions change the label (r̂)")


def misclassification(found: Motions) -> Figure:
    """How often random motions of a score change the label (Figs. 6 and 8), with 95 % intervals over images."""
    records = [
        {
            "model": rate.model,
            "group": title(rate.operator),
            "score": rate.wanted,
            "value": rate.changed.value,
            "worst": rate.worst.value,
            "rejected": rate.rejected,
            **_interval(rate.changed.low, rate.changed.high),
        }
        for rates in found.rates.values()
        for rate in rates
        if rate.draws
    ]
    groups = list(dict.fromkeys(record["group"] for record in records)) or [""]
    base = (
        alt.Chart(alt.InlineData(values=records))
        .transform_filter("datum.group === chosen_group")
        .encode(x=alt.X("score:Q", title="geodesic score of the motion (r)"), color=_colour(found))
    )
    band = base.mark_area(opacity=0.15).encode(y="low:Q", y2="high:Q")
    line = base.mark_line(strokeWidth=2.5, point=True).encode(
        y=alt.Y("value:Q", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%"), title="labels changed"),
        tooltip=[
            "model:N",
            "group:N",
            "score:Q",
            *(alt.Tooltip(f"{field}:Q", format=".1%") for field in ("value", "low", "high", "worst", "rejected")),
        ],
    )
    menu = alt.param("chosen_group", value=groups[0], bind=alt.binding_select(options=groups, name="motions "))
    return alt.layer(band, line).properties(width=740, height=320).add_params(menu)


def generator_shares(found: Motions) -> Figure:
    """How much of the smallest motions each generator has, as its mean share of the squared changes of the image."""
    records = [
        {
            "model": share.model,
            "group": title(share.operator),
            "bar": f"{title(share.operator)}, {share.model}",
            "part": share.part,
            "share": share.mean,
            "size": share.size,
        }
        for share in found.shares
    ]
    parts = list(dict.fromkeys(part for group in GROUP_FACTS.values() for part in group.parts))
    bars = (
        alt.Chart(alt.InlineData(values=records))
        .mark_bar()
        .encode(
            y=alt.Y("bar:N", title=None, axis=alt.Axis(labelLimit=320)),
            x=alt.X("share:Q", stack="normalize", axis=alt.Axis(format="%"), title="share of the change"),
            color=alt.Color("part:N", sort=parts, title="generator", scale=alt.Scale(scheme="tableau20")),
            tooltip=[
                "model:N",
                "group:N",
                "part:N",
                alt.Tooltip("share:Q", format=".1%"),
                alt.Tooltip("size:Q", format=".3g"),
            ],
        )
    )
    return alt.layer(bars).properties(width=560, height=alt.Step(20))


def _bars(found: Motions, records: list[dict[str, Any]], name: str) -> Figure:
    base = alt.Chart(alt.InlineData(values=records)).encode(
        y=alt.Y("group:N", title=None, sort=[title(operator) for operator in found.operators]),
        yOffset=alt.YOffset("model:N", sort=found.models),
        color=_colour(found),
        tooltip=["model:N", "group:N", *(alt.Tooltip(f"{field}:Q", format=".3f") for field in ("value", "low", "high"))],
    )
    bar = base.mark_bar(opacity=0.75).encode(x=alt.X("value:Q", title=name))
    rule = base.mark_rule(strokeWidth=2, color="black").encode(x="low:Q", x2="high:Q", color=alt.value("#333"))
    return alt.layer(bar, rule).properties(width=640, height=alt.Step(16))


def _interval(low: float, high: float) -> dict[str, float]:
    """Both ends, where they can be told: NaN is no JSON."""
    return {"low": low, "high": high} if low == low and high == high else {}


def _colour(found: Motions) -> alt.Color:
    legend = alt.Legend(symbolOpacity=1)
    return alt.Color("model:N", title="model", sort=found.models, scale=alt.Scale(range=PALETTE), legend=legend)
