"""Figures of the page as SVG, from plain records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt

Record = dict[str, Any]
RED, BLACK, GREY, PINK, BLUE = "#c8102e", "#1b1b1b", "#bdbdbd", "#e8998d", "#3c78b4"


def curves(records: Sequence[Record], ours: str, theirs: str) -> Any:
    """Return one panel per operator: our curve with a 95 % band, the published one dashed, the paper's other networks grey.

    Records have panel, series, level and accuracy; ours have low and high as well.
    """
    level = alt.X("level:Q", title=None, axis=alt.Axis(values=[0, 10, 20, 30], grid=False))
    share = alt.Y("accuracy:Q", title=None, scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(values=[0, 0.5, 1], format="%"))
    base = alt.Chart().encode(x=level, y=share)
    shown = [ours, theirs]
    colour = alt.Color("series:N", title=None, scale=alt.Scale(domain=shown, range=[RED, BLACK]))
    dashes = alt.StrokeDash("series:N", title=None, scale=alt.Scale(domain=shown, range=[[1, 0], [4, 2]]))
    band = base.transform_filter(alt.FieldEqualPredicate(field="series", equal=ours)).mark_area(opacity=0.2, color=RED)
    layers = alt.layer(
        base.transform_filter(f"indexof({shown}, datum.series) < 0")
        .mark_line(strokeWidth=1, color=GREY)
        .encode(detail="series:N"),
        band.encode(y="low:Q", y2="high:Q"),
        base.transform_filter(f"indexof({shown}, datum.series) >= 0")
        .mark_line(strokeWidth=1.7)
        .encode(color=colour, strokeDash=dashes),
    )
    panels = list(dict.fromkeys(record["panel"] for record in records))
    facet = alt.Facet("panel:N", title=None, sort=panels, header=alt.Header(labelFontWeight="bold", labelPadding=3))
    data = alt.InlineData(values=_rounded(records))
    return _plain(layers.properties(width=130, height=92).facet(facet, columns=5, data=data, spacing=12))


def spread(records: Sequence[Record], groups: Sequence[str]) -> Any:
    """Return one row per operator and one mark per network or setting; records have row, group, kept and label."""
    order = list(groups)
    base = alt.Chart(alt.InlineData(values=_rounded(records))).encode(
        y=alt.Y("row:N", sort=list(dict.fromkeys(record["row"] for record in records)), title=None),
        yOffset=alt.YOffset("group:N", sort=order),
        x=alt.X(
            "kept:Q",
            title="share of clean accuracy kept, mean over levels 0–30",
            scale=alt.Scale(domain=[0, 1.05]),
            axis=alt.Axis(tickCount=10),
        ),
    )
    colour = alt.Scale(domain=order, range=[BLACK, RED, PINK, BLUE])
    shape = alt.Scale(domain=order, range=["diamond", "circle", "triangle-up", "square"])
    marks = base.mark_point(filled=True, size=50, opacity=0.85).encode(
        color=alt.Color("group:N", title=None, scale=colour), shape=alt.Shape("group:N", title=None, scale=shape)
    )
    names = base.transform_filter("datum.label != null").mark_text(align="left", dx=7, fontSize=10).encode(text="label:N")
    return _plain(alt.layer(marks, names).properties(width=620, height=alt.Step(14)))


def save(chart: Any, path: Path) -> None:
    """Write a chart as SVG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    chart.save(path, format="svg")


def _rounded(records: Sequence[Record]) -> list[Record]:
    return [{key: round(value, 4) if isinstance(value, float) else value for key, value in one.items()} for one in records]


def _plain(chart: Any) -> Any:
    return (
        chart.configure_view(stroke="#dddddd")
        .configure_axis(labelFontSize=9, titleFontSize=11, gridColor="#eeeeee")
        .configure_legend(orient="top", labelFontSize=11, labelLimit=300)
    )
