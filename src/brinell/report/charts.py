"""What the charts of all lenses share. Importing this imports altair."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt

from brinell.report.panels import drop_nan, model_colours
from brinell.runs.statistics import Estimate
from brinell.runs.words import format_share

Chart = alt.LayerChart | alt.FacetChart | alt.ConcatChart


def inline_data(records: Iterable[dict[str, Any]]) -> alt.InlineData:
    """Return records as a chart's data, without values that are NaN or infinite: JSON has none."""
    return alt.InlineData(values=[drop_nan(record) for record in records])


def model_colour(models: Sequence[str], *, legend: bool = True) -> alt.Color:
    """Return the colour of models, with a legend in the order of `models`."""
    colours = model_colours(models)
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    shown = alt.Legend(symbolOpacity=1, values=list(models)) if legend else None
    return alt.Color("model:N", title="model", scale=scale, legend=shown)


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
    """Return bars side by side for each `group`, one per model, with intervals; `details` are further tooltips.

    Records have a model, the field that `group` names, and value, low and high as shares.
    """
    named = [{**record, "text": _describe(record, group)} for record in records]
    base = alt.Chart(inline_data(named)).encode(
        x=alt.X(f"{group}:N", sort=list(groups), title=None, axis=alt.Axis(labelAngle=0, labelLimit=130)),
        xOffset=alt.XOffset("model:N", sort=sorted(models)),  # as in legends
        tooltip=["model:N", f"{group}:N", *tooltips("value", "low", "high", *details)],
        description="text:N",
    )
    bar = base.mark_bar().encode(y=alt.Y("value:Q", axis=alt.Axis(format="%"), title=title), color=model_colour(models))
    interval = base.mark_rule(strokeWidth=1.5).encode(y="low:Q", y2="high:Q")
    return alt.layer(bar, interval).properties(width=max(110, 26 * len(models)) * len(groups), height=200)


def _describe(record: Mapping[str, Any], group: str) -> str:
    value = Estimate(record["value"], record["low"], record["high"])
    return f"{record['model']}, {record[group]}: {format_share(value)}"
