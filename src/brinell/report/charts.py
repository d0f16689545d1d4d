"""What the charts of all lenses share. Importing this imports altair."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import altair as alt

Chart = alt.LayerChart | alt.FacetChart
PALETTE = [
    "#4e79a7",
    "#f28e2b",
    "#e15759",
    "#76b7b2",
    "#59a14f",
    "#edc948",
    "#b07aa1",
    "#ff9da7",
    "#9c755f",
    "#7f7f7f",
    "#1b6ca8",
    "#a0522d",
    "#2e8b57",
    "#8b008b",
    "#000000",
]


def inline_data(records: Iterable[dict[str, Any]]) -> alt.InlineData:
    """Return records as a chart's data, without values that are NaN or infinite: JSON has none."""
    return alt.InlineData(values=[_drop_nan(record) for record in records])


def _drop_nan(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if not isinstance(value, float) or math.isfinite(value)}


def model_colour(models: Sequence[str], *, legend: bool = True) -> alt.Color:
    """Return one colour per model, the same in all charts of a run."""
    shown = alt.Legend(symbolOpacity=1) if legend else None
    return alt.Color("model:N", title="model", sort=list(models), scale=alt.Scale(range=PALETTE), legend=shown)


def tooltips(*fields: str, number: str = ".1%") -> list[alt.Tooltip]:
    """Return tooltips of numbers, as percentages by default."""
    return [alt.Tooltip(f"{field}:Q", format=number) for field in fields]


def menu(name: str, label: str, options: Sequence[str]) -> alt.Parameter:
    """Return a menu that sets the chart's parameter `name` to one of the options; the first is selected."""
    return alt.param(name, value=options[0], bind=alt.binding_select(options=list(options), name=f"{label} "))


def grouped_bars(
    records: Iterable[dict[str, Any]],
    models: Sequence[str],
    *,
    group: str,
    groups: Sequence[str],
    title: str,
    details: Sequence[str] = (),
) -> Chart:
    """Return bars side by side for each model, one per `group`, with intervals; `details` are further tooltips.

    Records have a model, the field that `group` names, and value, low and high as shares.
    """
    base = alt.Chart(inline_data(records)).encode(
        x=alt.X("model:N", sort=list(models), title=None, axis=alt.Axis(labelAngle=0, labelLimit=200)),
        xOffset=alt.XOffset(f"{group}:N", sort=list(groups)),
        tooltip=["model:N", f"{group}:N", *tooltips("value", "low", "high", *details)],
    )
    bar = base.mark_bar().encode(
        y=alt.Y("value:Q", axis=alt.Axis(format="%"), title=title),
        color=alt.Color(f"{group}:N", sort=list(groups), scale=alt.Scale(range=PALETTE), title=None),
    )
    interval = base.mark_rule(strokeWidth=1.5).encode(y="low:Q", y2="high:Q")
    return alt.layer(bar, interval).properties(width=max(240, 180 * len(models)), height=300)
