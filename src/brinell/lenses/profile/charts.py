"""Figures of degradation profiles, as Altair charts: interactive in a page or notebook, and as SVG or PNG."""

from __future__ import annotations

import altair as alt

from brinell.lenses.profile.findings import AVERAGE, Profiles
from brinell.runs.names import title

METRIC_TITLES = {
    "accuracy": "share of images that are right",
    "rank": "mean rank of the true label (0 is first)",
    "probability": "mean probability of the true label",
    "confidence": "mean confidence of the prediction",
    "map": "mean average precision, IoU 0.5 to 0.95",
    "map50": "mean average precision, IoU 0.5",
}
_SHARES = ("accuracy", "probability", "confidence", "map", "map50")
_LEVEL = alt.X("level:Q", title="level of degradation", axis=alt.Axis(tickMinStep=1))
Figure = alt.LayerChart | alt.FacetChart
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


def average_profiles(found: Profiles, metric: str | None = None) -> Figure:
    """One line a model, the mean over all operators (the paper's Figures 1-3). Without a metric, the reader chooses."""
    chart = _chart(found, [AVERAGE], metric)
    legend = alt.Legend(symbolOpacity=1)
    colour = alt.Color("model:N", title="model", sort=found.models, scale=alt.Scale(range=PALETTE), legend=legend)
    chosen = alt.selection_point(fields=["model"], bind="legend", name="chosen_models")
    band = chart.mark_area().encode(
        x=_LEVEL,
        y=alt.Y("low:Q"),
        y2="high:Q",
        color=colour,
        opacity=alt.condition(chosen, alt.value(0.18), alt.value(0)),
    )
    line = chart.mark_line(strokeWidth=2.5).encode(
        x=_LEVEL, y=_value(metric), color=colour, opacity=alt.condition(chosen, alt.value(1), alt.value(0.08))
    )
    layers = alt.layer(band, line.add_params(chosen), _points(chart, colour, metric)).properties(width=740, height=340)
    if metric is not None:
        return layers.properties(title=f"{METRIC_TITLES[metric]}, mean over all operators")
    return layers.add_params(_metric_menu(found))


def operator_profiles(found: Profiles, model: str | None = None, metric: str | None = None) -> Figure:
    """One line an operator (Figures 4-6 and 10-15). Without a model or metric, the reader chooses."""
    chart = _chart(found, found.operators, metric, model)
    if model is None:
        chart = chart.transform_filter("datum.model === chosen_model")
    names = [title(operator) for operator in found.operators]
    scale = alt.Scale(domain=names, range=[PALETTE[place % len(PALETTE)] for place in range(len(names))])
    colour = alt.Color("operator:N", title="most damaging first", scale=scale, sort=names)
    legend = alt.selection_point(fields=["operator"], bind="legend", name="chosen_operators")
    line = chart.mark_line(strokeWidth=2).encode(
        x=_LEVEL, y=_value(metric), color=colour, opacity=alt.condition(legend, alt.value(1), alt.value(0.08))
    )
    layers = alt.layer(line.add_params(legend), _points(chart, colour, metric)).properties(width=740, height=440)
    if model is None:
        menu = alt.binding_select(options=found.models, name="model ")
        layers = layers.add_params(alt.param("chosen_model", value=found.models[0], bind=menu))
    if metric is None:
        layers = layers.add_params(_metric_menu(found))
    return layers.properties(title=f"{model}: {METRIC_TITLES[metric]}") if model and metric else layers


def area_bars(found: Profiles) -> Figure:
    """Area under the accuracy profile for each operator and model, with 95 % intervals."""
    records = [
        {"model": model, "operator": title(operator), "area": area.value, "low": area.low, "high": area.high}
        for (model, operator), area in found.areas.items()
    ]
    names = [title(operator) for operator in found.operators]
    colour = alt.Color("model:N", title="model", sort=found.models, scale=alt.Scale(range=PALETTE))
    base = alt.Chart(alt.InlineData(values=records)).encode(
        y=alt.Y("operator:N", sort=names, title=None, axis=alt.Axis(labelLimit=220)),
        yOffset=alt.YOffset("model:N", sort=found.models),
        color=colour,
        tooltip=["model:N", "operator:N", _share("area"), _share("low"), _share("high")],
    )
    rule = base.mark_rule(strokeWidth=2).encode(
        x=alt.X("low:Q", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%"), title="mean accuracy over all levels"),
        x2="high:Q",
    )
    point = base.mark_point(filled=True, size=60, opacity=1).encode(x="area:Q")
    return alt.layer(rule, point).properties(width=640, height=alt.Step(max(10, 22 // max(1, len(found.models)))))


def _chart(found: Profiles, operators: list[str], metric: str | None, model: str | None = None) -> alt.Chart:
    """A chart over the points of some operators, with names for people and few digits."""
    records = []
    for record in found.table():
        if record["operator"] in operators and model in (None, record["model"]) and metric in (None, record["metric"]):
            named = {**record, "operator": AVERAGE if record["operator"] == AVERAGE else title(record["operator"])}
            short = {key: round(value, 4) if isinstance(value, float) else value for key, value in named.items()}
            records.append({key: value for key, value in short.items() if value == value})  # NaN is no JSON
    chart = alt.Chart(alt.InlineData(values=records))
    return chart.transform_filter("datum.metric === chosen_metric") if metric is None else chart


def _metric_menu(found: Profiles) -> alt.Parameter:
    menu = alt.binding_select(options=list(found.metrics), name="measure ")
    return alt.param("chosen_metric", value="accuracy", bind=menu)


def _value(metric: str | None) -> alt.Y:
    if metric in _SHARES:
        return alt.Y("value:Q", title=METRIC_TITLES[metric], axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    return alt.Y("value:Q", title=METRIC_TITLES.get(metric or "", "chosen measure"), scale=alt.Scale(zero=True))


def _share(field: str) -> alt.Tooltip:
    return alt.Tooltip(f"{field}:Q", format=".1%")


def _points(chart: alt.Chart, colour: alt.Color, metric: str | None) -> alt.Chart:
    """Unseen points that tell their figures under the pointer."""
    number = ".1%" if metric in _SHARES else ".3f"
    circles: alt.Chart = chart.mark_circle(size=90, opacity=0).encode(
        x=_LEVEL,
        y=_value(metric),
        color=colour,
        tooltip=[
            "model:N",
            "operator:N",
            "level:Q",
            alt.Tooltip("value:Q", format=number),
            alt.Tooltip("low:Q", format=number, title="95 % from"),
            alt.Tooltip("high:Q", format=number, title="to"),
            alt.Tooltip("told:N", title="that is"),
        ],
    )
    return circles
