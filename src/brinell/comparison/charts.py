"""Figures of runs compared, as Altair charts."""

from __future__ import annotations

from typing import Any

import altair as alt

from brinell.comparison.contrasts import Contrast, Contrasts, operator_title
from brinell.comparison.measures import AVERAGE, Measure
from brinell.lenses.profile.charts import Figure

_COLOURS = {"better": "#1a7f4b", "no clear difference": "#7f8c99", "worse": "#c0392b"}
_UNITS = {"points": "percentage points", "percent": "percent of what it was"}


def difference_bars(found: Contrasts, pair: int, measure: Measure) -> Figure:
    """What changed under each operator, with 95 % intervals, the worst first."""
    lines = [line for line in found.of(pair, measure.name) if line.effect.low == line.effect.low]
    records = [_record(found, line) for line in lines]
    names = [record["operator"] for record in records]
    base = _base(records).encode(
        y=alt.Y("operator:N", sort=names, title=None, axis=alt.Axis(labelLimit=220)), tooltip=_tooltip()
    )
    better = "right is better" if measure.better == "higher" else "left is better"
    reach = base.mark_rule(strokeWidth=2.5).encode(
        x=alt.X("low:Q", title=f"change in {_UNITS[measure.unit]} ({better})"), x2="high:Q"
    )
    point = base.mark_point(filled=True, size=70, opacity=1).encode(x="change:Q")
    return alt.layer(_zero(x="zero:Q"), reach, point).properties(width=640, height=alt.Step(24))


def level_differences(found: Contrasts, pair: int, measure: Measure) -> Figure:
    """What changed at each level, with 95 % intervals; the reader chooses the operator."""
    lines = [line for line in found.lines if (line.pair, line.measure) == (pair, measure.name)]
    records = [_record(found, line) for line in lines]
    names = list(dict.fromkeys(record["operator"] for record in records))
    name = f"chosen_operator_{pair}_{measure.name}"
    base = (
        _base(records)
        .transform_filter(f"datum.operator === {name}")
        .encode(x=alt.X("level:Q", title="level of degradation", axis=alt.Axis(tickMinStep=1)), tooltip=_tooltip("level:Q"))
    )
    reach = base.mark_rule(strokeWidth=2.5).encode(y=alt.Y("low:Q", title=f"change in {_UNITS[measure.unit]}"), y2="high:Q")
    point = base.mark_point(filled=True, size=50, opacity=1).encode(y="change:Q")
    menu = alt.param(name, value=names[0], bind=alt.binding_select(options=names, name="operator "))
    return alt.layer(_zero(y="zero:Q"), reach, point).properties(width=740, height=280).add_params(menu)


def comparison_charts(found: Contrasts, pair: int) -> dict[str, Figure]:
    """A figure for each measure that has several operators, by the measure's name."""
    charts = {}
    for measure in found.measures(pair):
        lines = [line for line in found.of(pair, measure.name) if line.operator != AVERAGE]
        if measure.by_level:
            charts[measure.name] = level_differences(found, pair, measure)
        elif sum(line.effect.low == line.effect.low for line in lines) > 1:
            charts[measure.name] = difference_bars(found, pair, measure)
    return charts


def _record(found: Contrasts, line: Contrast) -> dict[str, Any]:
    numbers = {"change": line.effect.value, "low": line.effect.low, "high": line.effect.high, "p": line.adjusted}
    return {
        "operator": operator_title(line.operator),
        "level": line.level,
        "images": line.images,
        "verdict": line.verdict(found.alpha),
        **{key: float(f"{value:.5g}") for key, value in numbers.items() if value == value},  # NaN is no JSON
    }


def _base(records: list[dict[str, Any]]) -> alt.Chart:
    scale = alt.Scale(domain=list(_COLOURS), range=list(_COLOURS.values()))
    chart: alt.Chart = alt.Chart(alt.InlineData(values=records)).encode(
        color=alt.Color("verdict:N", title=None, scale=scale)
    )
    return chart


def _zero(**where: str) -> alt.Chart:
    """The line of no change."""
    line = alt.Chart(alt.InlineData(values=[{"zero": 0}])).mark_rule(color="#1d2733", strokeDash=[4, 3])
    chart: alt.Chart = line.encode(**where)
    return chart


def _tooltip(*more: str) -> list[Any]:
    numbers = [alt.Tooltip(f"{name}:Q", format="+.2f") for name in ("change", "low", "high")]
    return ["operator:N", *more, *numbers, alt.Tooltip("p:Q", format=".2g", title="p (Holm)"), "images:Q", "verdict:N"]
