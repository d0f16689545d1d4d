"""Charts of smallest breaking changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from brinell.lenses.knob.findings import KnobFindings
from brinell.report.charts import Chart, inline_data, menu, model_colour, tooltips
from brinell.report.panels import Panel, line_panel, number_axis, share_axis
from brinell.units import format_amount

_DISTANCES = {
    "mse": "mean squared error",
    "mae": "mean absolute error",
    "l1": "L1",
    "l2": "L2",
    "linf": "L∞",
    "l0": "number of changed values",
    "changed": "share of changed pixels",
}


def robustness_bars(findings: KnobFindings) -> Chart:
    """Draw the mean smallest breaking change of each property and model, with 95 % intervals (the paper's Fig. 2)."""
    records = [
        {
            "model": one.model,
            "property": findings.title(one.operator),
            "value": one.robustness.value,
            "low": one.robustness.low,
            "from": max(one.robustness.low, one.robustness.value / 10),  # the axis is logarithmic and has no 0
            "high": one.robustness.high,
            "images": one.broken,
        }
        for one in findings.hardness.values()
        if one.broken
    ]
    title = f"mean smallest breaking change ({_DISTANCES[findings.distance]})"
    return _dots(findings, records, alt.X("from:Q", scale=alt.Scale(type="log"), title=title), ".2g")


def fooling_bars(findings: KnobFindings) -> Chart:
    """Draw the share of images that break below the property's common threshold (Figs. 3-5)."""
    records = [
        {
            "model": one.model,
            "property": findings.title(one.operator),
            "value": one.fooled.value,
            "low": one.fooled.low,
            "from": one.fooled.low,
            "high": one.fooled.high,
            "images": one.tested,
            "threshold": one.threshold,
        }
        for one in findings.hardness.values()
        if one.tested
    ]
    title = "share of images broken below the common threshold T"
    return _dots(findings, records, alt.X("from:Q", scale=alt.Scale(domain=[0, 1]), title=title), ".0%")


def threshold_curves(findings: KnobFindings, operator: str | None = None) -> Chart:
    """Draw the share of images that a change of a given size or less breaks. No property: the reader selects it."""
    records = [
        {**record, "property": findings.title(record["operator"])}
        for record in findings.curves
        if operator in (None, record["operator"])
    ]
    x = alt.X("distance:Q", scale=alt.Scale(type="log"), title=f"size of the change ({_DISTANCES[findings.distance]})")
    line = (
        _chart(records, operator)
        .mark_line(interpolate="step-after", strokeWidth=2.5, point=True)
        .encode(
            x=x,
            y=alt.Y("share:Q", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%"), title="share of images broken"),
            color=model_colour(findings.models),
            tooltip=["model:N", "property:N", *tooltips("distance", number=".3g"), *tooltips("share")],
        )
    )
    layers = alt.layer(line).properties(width=740, height=320)
    if operator is not None:
        return layers.properties(title=findings.title(operator))
    return layers.add_params(_property_menu(findings))


def amount_panels(findings: KnobFindings, curves: Sequence[Mapping[str, Any]]) -> list[Panel]:
    """Return a small chart for each property: the share of images broken over the amount, in its unit."""
    units = {operator: hardness.unit for (_, operator), hardness in findings.hardness.items()}
    panels = []
    for operator in findings.operators:
        unit = units.get(operator, "")
        # images that break at the same amount are one point: a line through several shares would run to and fro
        own = {
            (record["model"], record["direction"], record["amount"]): record
            for record in sorted(curves, key=lambda record: record["share"])
            if record["operator"] == operator
        }
        records = [
            {
                **record,
                "part": record["direction"],
                "value": record["share"],
                "text": f"{record['model']}: {format_amount(abs(record['amount']), unit)} {record['direction'] or ''}: "
                f"{record['share']:.0%} broken",
            }
            for record in own.values()
        ]
        factors = unit == "×" and all(record["amount"] > 0 for record in records)
        scale = {"type": "log"} if factors else {"zero": False}
        x = number_axis("amount", unit or "amount", axis={"tickCount": 4, "grid": False}, scale=scale)
        panels.append(
            line_panel(
                records,
                findings.models,
                title=findings.title(operator),
                x=x,
                y=share_axis("value"),
            )
        )
    return panels


def breaking_ranges(findings: KnobFindings, operator: str | None = None) -> Chart:
    """Draw the amounts that break images in each direction: mean (bar), weakest and strongest (line) (Figs. 8 and 9)."""
    own = [one for one in findings.ranges if operator in (None, one.operator)]
    units = {operator: hardness.unit for (_, operator), hardness in findings.hardness.items()}
    records = [
        {
            "model": one.model,
            "property": findings.title(one.operator),
            "direction": one.direction,
            "unit": units[one.operator],
            "mean": one.mean.value,
            "weakest": one.weakest,
            "strongest": one.strongest,
            "images": one.images,
            "clean": findings.neutral[one.operator],
        }
        for one in own
    ]
    amounts = tooltips("mean", "weakest", "strongest", number=".3g")
    base = _chart(records, operator).encode(
        y=alt.Y("model:N", sort=findings.models, title=None),
        color=model_colour(findings.models, legend=False),
        tooltip=["model:N", "direction:N", *amounts, "unit:N", "images:Q"],
    )
    title = "amount" if operator is None else units[operator] or "amount"
    bar = base.mark_bar(opacity=0.55, height=14).encode(x=alt.X("clean:Q", title=title), x2="mean:Q")
    line = base.mark_rule(strokeWidth=1.5).encode(x="weakest:Q", x2="strongest:Q")
    end = base.mark_tick(thickness=2, height=14).encode(x="strongest:Q")
    layers = alt.layer(line, bar, end).properties(width=640, height=alt.Step(30))
    if operator is not None:
        return layers.properties(title=f"{findings.title(operator)}: {units[operator]}")
    return layers.add_params(_property_menu(findings))


def _chart(records: list[dict[str, Any]], operator: str | None) -> alt.Chart:
    """Return a chart of one property's records, or of those that the reader selects."""
    chart = alt.Chart(inline_data(records))
    return chart.transform_filter("datum.property === selected_property") if operator is None else chart


def _dots(findings: KnobFindings, records: list[dict[str, Any]], x: alt.X, number: str) -> Chart:
    """Draw a value and its interval for each property and model."""
    values: dict[str, list[float]] = {}
    for record in records:
        values.setdefault(record["property"], []).append(record["value"])
    names = sorted(values, key=lambda name: sum(values[name]) / len(values[name]))
    threshold = [alt.Tooltip("threshold:Q", format=".2e", title="T")] if records and "threshold" in records[0] else []
    base = alt.Chart(inline_data(records)).encode(
        y=alt.Y("property:N", sort=names, title=None, axis=alt.Axis(labelLimit=220)),
        yOffset=alt.YOffset("model:N", sort=findings.models),
        color=model_colour(findings.models),
        tooltip=["model:N", "property:N", *tooltips("value", "low", "high", number=number), "images:Q", *threshold],
    )
    rule = base.mark_rule(strokeWidth=2).encode(x=x.axis(format=number), x2="high:Q")
    point = base.mark_point(filled=True, size=60, opacity=1).encode(x="value:Q")
    height = alt.Step(max(10, 24 // max(1, len(findings.models))))
    return alt.layer(rule, point).properties(width=640, height=height)


def _property_menu(findings: KnobFindings) -> alt.Parameter:
    return menu("selected_property", "property", [findings.title(operator) for operator in findings.operators])
