"""Charts of compared runs."""

from __future__ import annotations

from typing import Any

import altair as alt

from brinell.comparison.compare import Comparison, Delta
from brinell.lenses.reader import AVERAGE, Measure
from brinell.report.charts import Chart, inline_data, menu, tooltips

_COLOURS = {"better": "#1a7f4b", "no clear difference": "#7f8c99", "worse": "#c0392b"}
_UNITS = {"points": "percentage points", "percent": "percent of the old value"}


def comparison_charts(comparison: Comparison, pair: int) -> dict[str, Chart]:
    """Return a chart for each measure that has several operators, by the measure's name."""
    charts = {}
    for measure in comparison.measures(pair):
        deltas = [delta for delta in comparison.select(pair, measure.name) if delta.operator != AVERAGE]
        if measure.by_level:
            charts[measure.name] = level_changes(comparison, pair, measure)
        elif sum(delta.effect.low == delta.effect.low for delta in deltas) > 1:
            charts[measure.name] = operator_changes(comparison, pair, measure)
    return charts


def operator_changes(comparison: Comparison, pair: int, measure: Measure) -> Chart:
    """Draw the change under each operator with 95 % intervals, the worst first."""
    deltas = [delta for delta in comparison.select(pair, measure.name) if delta.effect.low == delta.effect.low]
    base = _base(comparison, deltas).encode(
        y=alt.Y("operator:N", sort=[delta.title for delta in deltas], title=None, axis=alt.Axis(labelLimit=220)),
        tooltip=_tooltip(),
    )
    better = "right is better" if measure.better == "higher" else "left is better"
    interval = base.mark_rule(strokeWidth=2.5).encode(
        x=alt.X("low:Q", title=f"change in {_UNITS[measure.unit]} ({better})"), x2="high:Q"
    )
    point = base.mark_point(filled=True, size=70, opacity=1).encode(x="change:Q")
    return alt.layer(_zero(x="zero:Q"), interval, point).properties(width=640, height=alt.Step(24))


def level_changes(comparison: Comparison, pair: int, measure: Measure) -> Chart:
    """Draw the change at each level with 95 % intervals; the reader selects the operator."""
    deltas = [delta for delta in comparison.deltas if (delta.pair, delta.measure.name) == (pair, measure.name)]
    name = f"chosen_operator_{pair}_{measure.name}"
    base = (
        _base(comparison, deltas)
        .transform_filter(f"datum.operator === {name}")
        .encode(x=alt.X("level:Q", title="level", axis=alt.Axis(tickMinStep=1)), tooltip=_tooltip("level:Q"))
    )
    interval = base.mark_rule(strokeWidth=2.5).encode(
        y=alt.Y("low:Q", title=f"change in {_UNITS[measure.unit]}"), y2="high:Q"
    )
    point = base.mark_point(filled=True, size=50, opacity=1).encode(y="change:Q")
    operators = list(dict.fromkeys(delta.title for delta in deltas))
    layers = alt.layer(_zero(y="zero:Q"), interval, point).properties(width=740, height=280)
    return layers.add_params(menu(name, "operator", operators))


def _base(comparison: Comparison, deltas: list[Delta]) -> alt.Chart:
    records = inline_data(_record(delta, comparison.alpha) for delta in deltas)
    scale = alt.Scale(domain=list(_COLOURS), range=list(_COLOURS.values()))
    chart: alt.Chart = alt.Chart(records).encode(color=alt.Color("verdict:N", title=None, scale=scale))
    return chart


def _record(delta: Delta, alpha: float) -> dict[str, Any]:
    numbers = {"change": delta.effect.value, "low": delta.effect.low, "high": delta.effect.high, "p": delta.adjusted}
    return {
        "operator": delta.title,
        "level": delta.level,
        "images": delta.images,
        "verdict": delta.verdict(alpha),
        **{name: float(f"{value:.5g}") for name, value in numbers.items()},
    }


def _zero(**where: str) -> alt.Chart:
    """Draw the line of no change."""
    line = alt.Chart(inline_data([{"zero": 0}])).mark_rule(color="#1d2733", strokeDash=[4, 3])
    chart: alt.Chart = line.encode(**where)
    return chart


def _tooltip(*more: str) -> list[Any]:
    p = alt.Tooltip("p:Q", format=".2g", title="p (Holm)")
    return ["operator:N", *more, *tooltips("change", "low", "high", number="+.2f"), p, "images:Q", "verdict:N"]
