"""What the charts of all lenses share. Importing this imports altair."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt

from brinell.runs.statistics import Estimate
from brinell.runs.words import format_share

Chart = alt.LayerChart | alt.FacetChart | alt.ConcatChart
# distinct for most people, and on light and dark ground
PALETTE = [
    "#2f7fd1",
    "#e07b00",
    "#1a9e77",
    "#b05fb0",
    "#d1495b",
    "#8a8f00",
    "#5bb5d6",
    "#9c755f",
    "#7f7f7f",
    "#e377c2",
    "#4c6a92",
    "#c9a227",
    "#2e8b57",
    "#a0522d",
    "#6a5acd",
]
_DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])
PANEL_WIDTH, PANEL_HEIGHT = 178, 118  # pixels of one of several charts, without axes


def inline_data(records: Iterable[dict[str, Any]]) -> alt.InlineData:
    """Return records as a chart's data, without values that are NaN or infinite: JSON has none."""
    return alt.InlineData(values=[_drop_nan(record) for record in records])


def _drop_nan(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if not isinstance(value, float) or math.isfinite(value)}


def model_colours(models: Iterable[str]) -> dict[str, str]:
    """Return one colour per model: by name, so that it is the same in all charts of a run."""
    return {model: PALETTE[index % len(PALETTE)] for index, model in enumerate(sorted(models))}


def model_colour(models: Sequence[str], *, legend: bool = True) -> alt.Color:
    """Return the colour of models, with a legend in the order of `models`."""
    colours = model_colours(models)
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    shown = alt.Legend(symbolOpacity=1, values=list(models)) if legend else None
    return alt.Color("model:N", title="model", scale=scale, legend=shown)


def model_dash(models: Sequence[str]) -> alt.StrokeDash:
    """Return the dashes of models' lines, which tell them apart without colour."""
    names = sorted(models)
    dashes = [_DASHES[index % len(_DASHES)] for index in range(len(names))]
    return alt.StrokeDash("model:N", scale=alt.Scale(domain=names, range=dashes), legend=None)


def tooltips(*fields: str, number: str = ".1%") -> list[alt.Tooltip]:
    """Return tooltips of numbers, as percentages by default."""
    return [alt.Tooltip(f"{field}:Q", format=number) for field in fields]


def menu(name: str, label: str, options: Sequence[str]) -> alt.Parameter:
    """Return a menu that sets the chart's parameter `name` to one of the options; the first is selected."""
    return alt.param(name, value=options[0], bind=alt.binding_select(options=list(options), name=f"{label} "))


def line_panel(
    records: Iterable[dict[str, Any]],
    models: Sequence[str],
    *,
    title: str,
    x: alt.X,
    y: alt.Y,
    interpolate: Any = "linear",
) -> Chart:
    """Return one of several small charts: a line per model, with its interval where records have low and high.

    Records have model, x, value and text, which is shown under the pointer; lines of several `part`s are separate.
    """
    base = alt.Chart(inline_data(records)).encode(x=x, color=model_colour(models), detail="part:N")
    band = base.mark_area(opacity=0.16, aria=False).encode(y=alt.Y("low:Q", title=None), y2="high:Q")
    line = base.mark_line(strokeWidth=2, interpolate=interpolate, aria=False).encode(y=y, strokeDash=model_dash(models))
    points = base.mark_circle(size=46, opacity=0).encode(y=y, description="text:N")
    return alt.layer(band, line, points).properties(
        width=PANEL_WIDTH, height=PANEL_HEIGHT, title=alt.TitleParams(title, limit=PANEL_WIDTH + 40)
    )


def share_axis(field: str, title: str | None = None, *, top: float | None = 1.0) -> alt.Y:
    """Return a vertical axis of shares from 0 to `top`; None: as high as the values."""
    scale = alt.Scale(domain=[0, top]) if top is not None else alt.Scale(zero=True)
    return alt.Y(f"{field}:Q", title=title, scale=scale, axis=alt.Axis(format="%", tickCount=4))


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
