"""Figures of fragile windows, as Altair charts."""

from __future__ import annotations

from typing import Any

import altair as alt

from brinell.lenses.fragility.findings import Fragility, Share
from brinell.lenses.fragility.fragile import KINDS
from brinell.lenses.profile.charts import PALETTE, Figure
from brinell.runs.names import title

JUDGED = {"correct": "right or wrong", "label": "label"}
MANY = 40  # classes, of which no more are shown


def fragile_curves(found: Fragility, kind: str | None = None) -> Figure:
    """The share of fragile windows against their size, a line a model (the paper's Figs. 5 and A.1).

    Without a kind, the reader chooses it, and whether it is the label that has to change.
    """
    shares = [one for one in found.shares.values() if one.operator.startswith("windows:") and one.images]
    records = [_record(one, "share") for one in shares if kind in (None, one.kind)]
    if kind is not None:
        records = [record for record in records if record["judged by"] == JUDGED["correct"]]
    chart = alt.Chart(alt.InlineData(values=records))
    if kind is None:
        chart = chart.transform_filter("datum.kind === chosen_kind && datum['judged by'] === chosen_way")
    layers = _lines(chart, found, "share of windows that are fragile")
    if kind is not None:
        return layers.properties(title=f"{kind}, by right or wrong")
    ways = [way for way in JUDGED.values() if any(record["judged by"] == way for record in records)]
    return layers.add_params(_menu("chosen_kind", "kind ", list(KINDS)), _menu("chosen_way", "what changes ", ways))


def location_curves(found: Fragility) -> Figure:
    """The share of places on black at which a shift by a pixel changes the label (Fig. 7a)."""
    shares = [one for one in found.shares.values() if one.operator.startswith("location:") and one.images]
    records = [_record(one, "share") for one in shares if one.judged_by == "label" and one.kind == "loose shift"]
    return _lines(alt.Chart(alt.InlineData(values=records)), found, "share of places where the label changes")


def recognised_curves(found: Fragility) -> Figure:
    """The share of windows that are recognised against their size (Figs. A.2 and A.5a)."""
    shares = [one for one in found.shares.values() if one.operator.startswith("windows:") and one.images]
    records = [_record(one, "recognised") for one in shares if (one.kind, one.judged_by) == ("loose shrink", "correct")]
    return _lines(alt.Chart(alt.InlineData(values=records)), found, "share of windows that are right")


def sign_bars(found: Fragility) -> Figure:
    """Fragile windows that a change makes wrong, and those that it makes right; inside and outside objects, where known."""
    records = []
    for one in found.shares.values():
        if one.judged_by != "correct" or not one.images or not one.operator.startswith("windows:"):
            continue
        parts = {
            "right → wrong": one.lost,
            "wrong → right": one.gained,
            "in the object": one.inside,
            "around it": one.outside,
        }
        for part, value in parts.items():
            if value.value == value.value:
                records.append(
                    {"model": one.model, "kind": one.kind, "size": title(one.operator), "part": part} | _numbers(value)
                )
    chart = alt.Chart(alt.InlineData(values=records)).transform_filter("datum.kind === chosen_part_kind")
    bars = chart.mark_bar().encode(
        x=alt.X("part:N", title=None, sort=None),
        y=alt.Y("value:Q", axis=alt.Axis(format="%"), title="fragile"),
        color=alt.Color("part:N", legend=None, sort=None),
        tooltip=["model:N", "size:N", "part:N", alt.Tooltip("value:Q", format=".2%")],
    )
    rules = chart.mark_rule().encode(x=alt.X("part:N", sort=None), y="low:Q", y2="high:Q")
    layers = alt.layer(bars, rules).properties(width=130, height=140)
    faceted = layers.facet(column=alt.Column("size:N", title=None, sort=None), row=alt.Row("model:N", title=None))
    return faceted.add_params(_menu("chosen_part_kind", "kind ", list(KINDS)))


def class_bars(found: Fragility, names: dict[str, Any]) -> Figure:
    """The share of fragile windows by class, mean over sizes: the classes with the most."""
    sums: dict[tuple[str, str], list[float]] = {}
    for record in found.by_class:
        if record["kind"] == "loose shift" and record["operator"].startswith("windows:"):
            name = names[record["model"]](record["label"]) if record["model"] in names else str(record["label"])
            sums.setdefault((record["model"], name), []).append(record["share"])
    ranked = sorted(sums.items(), key=lambda one: -sum(one[1]) / len(one[1]))[:MANY]
    records = [{"model": model, "class": name, "share": sum(own) / len(own)} for (model, name), own in ranked]
    bars = (
        alt.Chart(alt.InlineData(values=records))
        .mark_bar()
        .encode(
            y=alt.Y("class:N", sort="-x", title=None),
            x=alt.X("share:Q", axis=alt.Axis(format="%"), title="share of windows that are fragile (loose shift)"),
            color=_colour(found),
            tooltip=["model:N", "class:N", alt.Tooltip("share:Q", format=".2%")],
        )
    )
    return alt.layer(bars).properties(width=560)


def _lines(chart: alt.Chart, found: Fragility, name: str) -> Figure:
    pixels = any(operator.endswith("px") for operator in found.operators)
    x = alt.X(
        "size:Q", title="side of the windows, pixels" if pixels else "P: side of the windows over the image's shorter side"
    )
    y = alt.Y("value:Q", axis=alt.Axis(format="%"), title=name, scale=alt.Scale(zero=True))
    band = chart.mark_area(opacity=0.15).encode(x=x, y="low:Q", y2="high:Q", color=_colour(found))
    line = chart.mark_line(strokeWidth=2.5, point=alt.OverlayMarkDef(size=50)).encode(
        x=x,
        y=y,
        color=_colour(found),
        tooltip=["model:N", "size:Q", "images:Q", alt.Tooltip("value:Q", format=".2%")],
    )
    return alt.layer(band, line).properties(width=740, height=320)


def _record(one: Share, name: str) -> dict[str, Any]:
    size = one.operator.partition(":")[2]
    return {
        "model": one.model,
        "kind": one.kind,
        "judged by": JUDGED[one.judged_by],
        "size": float(size.removesuffix("px")),
        "images": one.images,
        **_numbers(getattr(one, name)),
    }


def _numbers(value: Any) -> dict[str, float | None]:
    known = {"value": value.value, "low": value.low, "high": value.high}
    return {key: None if number != number else number for key, number in known.items()}


def _colour(found: Fragility) -> alt.Color:
    return alt.Color("model:N", title="model", sort=found.models, scale=alt.Scale(range=PALETTE))


def _menu(name: str, label: str, options: list[str]) -> alt.Parameter:
    return alt.param(name=name, value=options[0] if options else "", bind=alt.binding_select(options=options, name=label))
