"""Charts of degradation profiles."""

from __future__ import annotations

import altair as alt

from brinell.lenses.profile.findings import ProfileFindings
from brinell.lenses.profile.panels import SHARES, operator_panels
from brinell.lenses.reader import AVERAGE
from brinell.report.charts import Chart, inline_data, menu, model_colour, tooltips
from brinell.report.panels import PALETTE

METRIC_TITLES = {
    "accuracy": "accuracy",
    "rank": "mean rank of the true label (0 = first)",
    "probability": "mean probability of the true label",
    "confidence": "mean confidence of the prediction",
    "map": "mean average precision (IoU 0.5 to 0.95)",
    "map50": "mean average precision (IoU 0.5)",
    "miou": "mean IoU of all classes",
}
_LEVEL = alt.X("level:Q", title="level of degradation", axis=alt.Axis(tickMinStep=1))


def average_profiles(findings: ProfileFindings, metric: str | None = None) -> Chart:
    """Draw one line per model, averaged over all operators (Swingler 2022, Figs. 1-3). No metric: the reader selects it."""
    chart = _chart(findings, [AVERAGE], metric)
    colour = model_colour(findings.models)
    selected = alt.selection_point(fields=["model"], bind="legend", name="selected_models")
    band = chart.mark_area().encode(
        x=_LEVEL,
        y=alt.Y("low:Q"),
        y2="high:Q",
        color=colour,
        opacity=alt.condition(selected, alt.value(0.18), alt.value(0)),
    )
    line = chart.mark_line(strokeWidth=2.5).encode(
        x=_LEVEL, y=_value(metric), color=colour, opacity=alt.condition(selected, alt.value(1), alt.value(0.08))
    )
    points = _hover_points(chart, colour, metric)
    layers = alt.layer(band, line.add_params(selected), points).properties(width=740, height=340)
    if metric is not None:
        return layers.properties(title=f"{METRIC_TITLES[metric]}, averaged over operators")
    return layers.add_params(_metric_menu(findings))


def operator_profiles(findings: ProfileFindings, model: str | None = None, metric: str | None = None) -> Chart:
    """Draw one line per operator (Figs. 4-6 and 10-15). No model or metric: the reader selects it."""
    chart = _chart(findings, findings.operators, metric, model)
    if model is None:
        chart = chart.transform_filter("datum.model === selected_model")
    names = [findings.title(operator) for operator in findings.operators]
    scale = alt.Scale(domain=names, range=[PALETTE[index % len(PALETTE)] for index in range(len(names))])
    colour = alt.Color("operator:N", title="most damaging first", scale=scale, sort=names)
    selected = alt.selection_point(fields=["operator"], bind="legend", name="selected_operators")
    line = chart.mark_line(strokeWidth=2).encode(
        x=_LEVEL, y=_value(metric), color=colour, opacity=alt.condition(selected, alt.value(1), alt.value(0.08))
    )
    points = _hover_points(chart, colour, metric)
    layers = alt.layer(line.add_params(selected), points).properties(width=740, height=440)
    if model is None:
        layers = layers.add_params(menu("selected_model", "model", findings.models))
    if metric is None:
        layers = layers.add_params(_metric_menu(findings))
    return layers.properties(title=f"{model}: {METRIC_TITLES[metric]}") if model and metric else layers


def operator_grid(findings: ProfileFindings) -> Chart:
    """Draw accuracy under each operator in a panel of its own, the most damaging first, after their average."""
    panels = (alt.LayerChart.from_dict(panel.to_dict()) for panel in operator_panels(findings))
    return alt.concat(*panels, columns=4)


def area_bars(findings: ProfileFindings) -> Chart:
    """Draw the area under every accuracy profile, with 95 % intervals."""
    records = [
        {"model": model, "operator": findings.title(operator), "area": area.value, "low": area.low, "high": area.high}
        for (model, operator), area in findings.areas.items()
    ]
    names = [findings.title(operator) for operator in findings.operators]
    base = alt.Chart(inline_data(records)).encode(
        y=alt.Y("operator:N", sort=names, title=None, axis=alt.Axis(labelLimit=220)),
        yOffset=alt.YOffset("model:N", sort=findings.models),
        color=model_colour(findings.models),
        tooltip=["model:N", "operator:N", *tooltips("area", "low", "high")],
    )
    rule = base.mark_rule(strokeWidth=2).encode(
        x=alt.X("low:Q", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%"), title="mean accuracy over all levels"),
        x2="high:Q",
    )
    point = base.mark_point(filled=True, size=60, opacity=1).encode(x="area:Q")
    height = alt.Step(max(10, 22 // max(1, len(findings.models))))
    return alt.layer(rule, point).properties(width=640, height=height)


def _chart(findings: ProfileFindings, operators: list[str], metric: str | None, model: str | None = None) -> alt.Chart:
    """Return a chart of the points of some operators, with titles and rounded values."""
    records = []
    for record in findings.table():
        if record["operator"] in operators and model in (None, record["model"]) and metric in (None, record["metric"]):
            titled = {**record, "operator": findings.title(record["operator"])}
            records.append({key: round(value, 4) if isinstance(value, float) else value for key, value in titled.items()})
    chart = alt.Chart(inline_data(records))
    return chart.transform_filter("datum.metric === selected_metric") if metric is None else chart


def _metric_menu(findings: ProfileFindings) -> alt.Parameter:
    return menu("selected_metric", "metric", findings.metrics)


def _value(metric: str | None) -> alt.Y:
    if metric in SHARES:
        return alt.Y("value:Q", title=METRIC_TITLES[metric], axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1]))
    return alt.Y("value:Q", title=METRIC_TITLES.get(metric or "", "selected metric"), scale=alt.Scale(zero=True))


def _hover_points(chart: alt.Chart, colour: alt.Color, metric: str | None) -> alt.Chart:
    """Return invisible points that show their values under the pointer."""
    number = ".1%" if metric in SHARES else ".3f"
    circles: alt.Chart = chart.mark_circle(size=90, opacity=0).encode(
        x=_LEVEL,
        y=_value(metric),
        color=colour,
        tooltip=[
            "model:N",
            "operator:N",
            "level:Q",
            alt.Tooltip("value:Q", format=number),
            alt.Tooltip("low:Q", format=number, title="95 % interval from"),
            alt.Tooltip("high:Q", format=number, title="to"),
            alt.Tooltip("caption:N", title="amount"),
        ],
    )
    return circles
