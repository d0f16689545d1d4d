"""Charts of compared runs."""

from __future__ import annotations

from typing import Any

import altair as alt

from brinell.comparison.compare import Comparison, Delta
from brinell.lenses.reader import AVERAGE, Measure
from brinell.report.charts import Chart, inline_data, tooltips
from brinell.report.figures import INK
from brinell.report.panels import PANEL_HEIGHT, PANEL_WIDTH
from brinell.report.section import Figure

_COLOURS = {"better": "#1a7f4b", "no clear difference": "#7f8c99", "worse": "#c0392b"}
_UNITS = {"points": "percentage points", "percent": "percent of the old value"}


def comparison_figures(comparison: Comparison, pair: int) -> dict[str, Figure]:
    """Return a figure for each measure that has several operators, by the measure's name."""
    figures = {}
    for measure in comparison.measures(pair):
        deltas = [delta for delta in comparison.select(pair, measure.name) if delta.operator != AVERAGE]
        panels: list[Chart] = []
        if measure.by_level:
            deltas = [delta for delta in comparison.deltas if (delta.pair, delta.measure.name) == (pair, measure.name)]
            panels = level_panels(comparison, deltas, measure)
        elif sum(delta.effect.low == delta.effect.low for delta in deltas) > 1:
            panels = [operator_changes(comparison, pair, measure)]
        if panels:
            figures[measure.name] = Figure(
                name=f"changes-{pair}-{measure.name}",
                alt=f"Change in {measure.what} under each operator, with 95 % intervals.",
                panels=panels,
                records=[_record(delta, comparison.alpha) for delta in deltas],
                legend=list(_COLOURS.items()),
            )
    return figures


def operator_changes(comparison: Comparison, pair: int, measure: Measure) -> Chart:
    """Draw the change under each operator with 95 % intervals, the worst first."""
    deltas = [delta for delta in comparison.select(pair, measure.name) if delta.effect.low == delta.effect.low]
    base = _base(comparison, deltas).encode(
        y=alt.Y("operator:N", sort=[delta.title for delta in deltas], title=None, axis=alt.Axis(labelLimit=220)),
        tooltip=_tooltip(),
        description="text:N",
    )
    better = "right is better" if measure.better == "higher" else "left is better"
    interval = base.mark_rule(strokeWidth=2.5).encode(
        x=alt.X("low:Q", title=f"change in {_UNITS[measure.unit]} ({better})"), x2="high:Q"
    )
    point = base.mark_point(filled=True, size=70, opacity=1).encode(x="change:Q")
    return alt.layer(_zero(x="zero:Q"), interval, point).properties(width=640, height=alt.Step(24))


def level_panels(comparison: Comparison, deltas: list[Delta], measure: Measure) -> list[Chart]:
    """Return a small chart for each operator: the change at each level with 95 % intervals."""
    panels: list[Chart] = []
    for title in dict.fromkeys(delta.title for delta in deltas):
        base = _base(comparison, [delta for delta in deltas if delta.title == title]).encode(
            x=alt.X("level:Q", title="level", axis=alt.Axis(tickMinStep=1, tickCount=5, grid=False)), description="text:N"
        )
        interval = base.mark_rule(strokeWidth=2).encode(y=alt.Y("low:Q", title=_UNITS[measure.unit]), y2="high:Q")
        point = base.mark_point(filled=True, size=30, opacity=1).encode(y="change:Q")
        head = alt.TitleParams(title, limit=PANEL_WIDTH + 40)
        layers = alt.layer(_zero(y="zero:Q"), interval, point)
        panels.append(layers.properties(width=PANEL_WIDTH, height=PANEL_HEIGHT, title=head))
    return panels


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
        "text": f"{delta.title}{'' if delta.level is None else f', level {delta.level}'}: {delta.effect.value:+.2f} "
        f"[{delta.effect.low:+.2f}, {delta.effect.high:+.2f}], {delta.verdict(alpha)}",
        **{name: float(f"{value:.5g}") for name, value in numbers.items()},
    }


def _zero(**where: str) -> alt.Chart:
    """Draw the line of no change."""
    line = alt.Chart(inline_data([{"zero": 0}])).mark_rule(color=INK, strokeDash=[4, 3])
    chart: alt.Chart = line.encode(**where)
    return chart


def _tooltip(*more: str) -> list[Any]:
    p = alt.Tooltip("p:Q", format=".2g", title="p (Holm)")
    return ["operator:N", *more, *tooltips("change", "low", "high", number="+.2f"), p, "images:Q", "verdict:N"]
