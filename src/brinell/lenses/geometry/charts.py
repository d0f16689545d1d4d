"""Charts of the motions that change a label."""

from __future__ import annotations

from typing import Any

import altair as alt

from brinell.lenses.geometry.findings import GeometryFindings
from brinell.lenses.geometry.rows import SCORE_LIMIT
from brinell.motion.names import GROUP_FACTS
from brinell.report.charts import Chart, inline_data, menu, model_colour, tooltips
from brinell.report.figures import INK
from brinell.report.panels import PALETTE, Panel, line_panel, number_axis, share_axis
from brinell.runs.words import format_share

_COORDINATES = list(dict.fromkeys(part for group in GROUP_FACTS.values() for part in group.parts))


def invariance_bars(findings: GeometryFindings) -> Chart:
    """Draw the mean geodesic score of the smallest motions up to the limit, by group, method and model."""
    records = [
        {
            "model": one.model,
            "group": findings.title(one.operator),
            "value": one.restricted_mean.value,
            "low": one.restricted_mean.low,
            "high": one.restricted_mean.high,
            "images": one.images,
        }
        for one in findings.smallest.values()
        if one.images
    ]
    return _bars(findings, records, f"mean geodesic score of the smallest motion, up to {SCORE_LIMIT:g}")


def random_bars(findings: GeometryFindings) -> Chart:
    """Draw r̂, the score at which random motions change `threshold` of the labels (Fig. 7, right)."""
    records = []
    for model, operator in findings.rates:
        score = findings.threshold_score(model, operator)
        if score is not None:
            records.append({"model": model, "group": findings.title(operator), "value": score})
    return _bars(findings, records, f"score at which random motions change {findings.threshold:.0%} of labels (r̂)")


def misclassification(findings: GeometryFindings) -> Chart:
    """Draw the misclassification rate over the score of random motions (Figs. 6 and 8), with 95 % intervals over images."""
    records: list[dict[str, Any]] = [
        {
            "model": rate.model,
            "group": findings.title(rate.operator),
            "score": rate.score,
            "value": rate.changed.value,
            "low": rate.changed.low,
            "high": rate.changed.high,
            "worst": rate.worst.value,
            "rejected": rate.rejected,
        }
        for rates in findings.rates.values()
        for rate in rates
        if rate.draws
    ]
    groups = list(dict.fromkeys(record["group"] for record in records)) or [""]
    base = (
        alt.Chart(inline_data(records))
        .transform_filter("datum.group === chosen_group")
        .encode(x=alt.X("score:Q", title="geodesic score of the motion (r)"), color=model_colour(findings.models))
    )
    band = base.mark_area(opacity=0.15).encode(y="low:Q", y2="high:Q")
    line = base.mark_line(strokeWidth=2.5, point=True).encode(
        y=alt.Y("value:Q", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%"), title="labels changed"),
        tooltip=["model:N", "group:N", "score:Q", *tooltips("value", "low", "high", "worst", "rejected")],
    )
    return alt.layer(band, line).properties(width=740, height=320).add_params(menu("chosen_group", "motions", groups))


def rate_panels(findings: GeometryFindings) -> list[Panel]:
    """Return a small chart of the misclassification rate for each group of random motions."""
    panels = []
    for operator in dict.fromkeys(operator for _, operator in findings.rates):
        records = [
            {
                "model": rate.model,
                "score": rate.score,
                **vars(rate.changed),
                "text": f"{rate.model}, score {rate.score:g}: {format_share(rate.changed)} of labels changed",
            }
            for (_, name), rates in findings.rates.items()
            for rate in rates
            if name == operator and rate.draws
        ]
        x = number_axis("score", "geodesic score", axis={"tickCount": 4, "grid": False})
        panels.append(
            line_panel(
                records, findings.models, title=findings.title(operator), x=x, y=share_axis("value", "labels changed")
            )
        )
    return panels


def coordinate_legend(findings: GeometryFindings) -> list[tuple[str, str]]:
    """Return the colours of coordinates."""
    used = {share.coordinate for share in findings.shares}
    names = [name for name in _COORDINATES if name in used]
    return [(name, PALETTE[index % len(PALETTE)]) for index, name in enumerate(names)]


def coordinate_shares(findings: GeometryFindings) -> Chart:
    """Draw how much each coordinate contributes to the smallest motions."""
    records = [
        {
            "model": share.model,
            "group": findings.title(share.operator),
            "bar": f"{findings.title(share.operator)}, {share.model}",
            "coordinate": share.coordinate,
            "share": share.mean,
            "size": share.size,
        }
        for share in findings.shares
    ]
    colours = dict(coordinate_legend(findings))
    bars = (
        alt.Chart(inline_data(records))
        .mark_bar()
        .encode(
            y=alt.Y("bar:N", title=None, axis=alt.Axis(labelLimit=320)),
            x=alt.X("share:Q", stack="normalize", axis=alt.Axis(format="%"), title="share of the squared change"),
            color=alt.Color("coordinate:N", scale=alt.Scale(domain=list(colours), range=list(colours.values()))),
            tooltip=["model:N", "group:N", "coordinate:N", *tooltips("share"), *tooltips("size", number=".3g")],
        )
    )
    return alt.layer(bars).properties(width=560, height=alt.Step(20))


def _bars(findings: GeometryFindings, records: list[dict[str, Any]], title: str) -> Chart:
    groups = [findings.title(operator) for operator in findings.operators]
    base = alt.Chart(inline_data(records)).encode(
        y=alt.Y("group:N", title=None, sort=groups),
        yOffset=alt.YOffset("model:N", sort=findings.models),
        color=model_colour(findings.models),
        tooltip=["model:N", "group:N", *tooltips("value", "low", "high", number=".3f")],
    )
    bar = base.mark_bar(opacity=0.75).encode(x=alt.X("value:Q", title=title))
    rule = base.mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q", color=alt.value(INK))
    return alt.layer(bar, rule).properties(width=520, height=alt.Step(16))
