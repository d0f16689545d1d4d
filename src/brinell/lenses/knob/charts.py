"""Figures of smallest breaking changes, as Altair charts."""

from __future__ import annotations

from typing import Any

import altair as alt
import torch

from brinell.lenses.knob.findings import Knobs
from brinell.lenses.profile.charts import PALETTE, Figure
from brinell.perturb.property import property_facts
from brinell.runs.names import title

_DISTANCES = {
    "mse": "mean squared error",
    "mae": "mean absolute error",
    "l1": "L1",
    "l2": "L2",
    "linf": "L∞",
    "l0": "number of values changed",
    "changed": "share of pixels changed",
}


def robustness_bars(found: Knobs) -> Figure:
    """The mean smallest breaking change of each property and model, with 95 % intervals (the paper's Fig. 2)."""
    records = [
        {
            "model": one.model,
            "property": title(one.operator),
            "value": one.robustness.value,
            "low": one.robustness.low,
            "from": max(one.robustness.low, one.robustness.value / 10),  # the axis is logarithmic and has no 0
            "high": one.robustness.high,
            "images": one.broken,
        }
        for one in found.hardness.values()
        if one.broken
    ]
    name = f"mean smallest breaking change ({_named(found)})"
    return _dots(found, _finite(records), alt.Scale(type="log"), name, ".2g")


def fooling_bars(found: Knobs) -> Figure:
    """The share of images that less than the property's common threshold breaks (Figs. 3-5)."""
    records = [
        {
            "model": one.model,
            "property": title(one.operator),
            "value": one.fooled.value,
            "low": one.fooled.low,
            "from": one.fooled.low,
            "high": one.fooled.high,
            "images": one.asked,
            "threshold": one.threshold,
        }
        for one in found.hardness.values()
        if one.asked
    ]
    name = "share of images broken below the common threshold T"
    return _dots(found, _finite(records), alt.Scale(domain=[0, 1]), name, ".0%")


def threshold_curves(found: Knobs, operator: str | None = None) -> Figure:
    """The share of images that a change of some size, or a smaller one, breaks. Without a property, the reader chooses."""
    records = [
        {**record, "property": title(record["operator"])}
        for record in found.curves
        if operator in (None, record["operator"])
    ]
    chart = alt.Chart(alt.InlineData(values=records))
    if operator is None:
        chart = chart.transform_filter("datum.property === chosen_property")
    line = chart.mark_line(interpolate="step-after", strokeWidth=2.5, point=True).encode(
        x=alt.X("distance:Q", scale=alt.Scale(type="log"), title=f"size of the change ({_named(found)})"),
        y=alt.Y("share:Q", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%"), title="share of images broken"),
        color=_colour(found),
        tooltip=["model:N", "property:N", alt.Tooltip("distance:Q", format=".3g"), alt.Tooltip("share:Q", format=".1%")],
    )
    layers = alt.layer(line).properties(width=740, height=320)
    if operator is not None:
        return layers.properties(title=title(operator))
    return layers.add_params(_property_menu([title(name) for name in found.operators]))


def sides(found: Knobs, operator: str | None = None) -> Figure:
    """How far a property has to go, each way, in its natural unit: mean (bar), least and largest (Figs. 8 and 9)."""
    records = []
    for side in found.sides:
        if operator in (None, side.operator):
            facts = property_facts(side.operator)
            neutral = float(facts.amount(torch.zeros(1, 3, dtype=torch.float64), 224, 224))
            records.append(
                {
                    "model": side.model,
                    "property": title(side.operator),
                    "direction": side.direction,
                    "unit": facts.unit,
                    "mean": side.mean.value,
                    "least": side.least,
                    "largest": side.largest,
                    "images": side.images,
                    "clean": neutral,
                }
            )
    chart = alt.Chart(alt.InlineData(values=_finite(records)))
    if operator is None:
        chart = chart.transform_filter("datum.property === chosen_property")
    base = chart.encode(
        y=alt.Y("model:N", sort=found.models, title=None),
        color=_colour(found, legend=False),
        tooltip=[
            "model:N",
            "direction:N",
            alt.Tooltip("mean:Q", format=".3g"),
            alt.Tooltip("least:Q", format=".3g"),
            alt.Tooltip("largest:Q", format=".3g"),
            "unit:N",
            "images:Q",
        ],
    )
    bar = base.mark_bar(opacity=0.55, height=14).encode(x=alt.X("clean:Q", title="natural unit"), x2="mean:Q")
    reach = base.mark_rule(strokeWidth=1.5).encode(x="least:Q", x2="largest:Q")
    end = base.mark_tick(thickness=2, height=14).encode(x="largest:Q")
    layers = alt.layer(reach, bar, end).properties(width=640, height=alt.Step(30))
    if operator is not None:
        return layers.properties(title=f"{title(operator)}: {property_facts(operator).unit}")
    return layers.add_params(_property_menu([title(name) for name in found.operators]))


def _dots(found: Knobs, records: list[dict[str, Any]], scale: alt.Scale, name: str, number: str) -> Figure:
    """A figure and its interval for each property and model."""
    totals: dict[str, list[float]] = {}
    for record in records:
        totals.setdefault(record["property"], []).append(record["value"])
    names = sorted(totals, key=lambda name: sum(totals[name]) / len(totals[name]))
    base = alt.Chart(alt.InlineData(values=records)).encode(
        y=alt.Y("property:N", sort=names, title=None, axis=alt.Axis(labelLimit=220)),
        yOffset=alt.YOffset("model:N", sort=found.models),
        color=_colour(found),
        tooltip=[
            "model:N",
            "property:N",
            *(alt.Tooltip(f"{field}:Q", format=number) for field in ("value", "low", "high")),
            "images:Q",
            *([alt.Tooltip("threshold:Q", format=".2e", title="T")] if records and "threshold" in records[0] else []),
        ],
    )
    rule = base.mark_rule(strokeWidth=2).encode(
        x=alt.X("from:Q", scale=scale, axis=alt.Axis(format=number), title=name), x2="high:Q"
    )
    point = base.mark_point(filled=True, size=60, opacity=1).encode(x="value:Q")
    return alt.layer(rule, point).properties(width=640, height=alt.Step(max(10, 24 // max(1, len(found.models)))))


def _colour(found: Knobs, legend: bool = True) -> alt.Color:
    shown = alt.Legend(symbolOpacity=1) if legend else None
    return alt.Color("model:N", title="model", sort=found.models, scale=alt.Scale(range=PALETTE), legend=shown)


def _property_menu(names: list[str]) -> alt.Parameter:
    return alt.param("chosen_property", value=names[0], bind=alt.binding_select(options=names, name="property "))


def _named(found: Knobs) -> str:
    return _DISTANCES[found.distance]


def _finite(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records without what can't be told: NaN is no JSON."""
    return [{key: value for key, value in record.items() if value == value} for record in records]
