"""Charts of the highlights lens."""

from __future__ import annotations

import math

import altair as alt

from brinell.errors import ConfigError
from brinell.lenses.highlights.findings import HighlightFindings
from brinell.report.charts import Chart, grouped_bars, inline_data, model_colour, tooltips


def accuracy_bars(findings: HighlightFindings, operator: str | None = None) -> Chart:
    """Draw accuracy on originals, on all variants, and if k failing variants fail an image (the paper's Figs. 5, 7)."""
    records, names = [], []
    for one in findings.of_grid(operator):
        figures = {"top-1 on originals": one.top1, "S-average": one.average}
        figures |= {f"S ≥ {k}": value for k, value in one.at_least.items()}
        names = list(figures)
        records += [{"model": one.model, "figure": name, **vars(value)} for name, value in figures.items()]
    return grouped_bars(records, findings.models, group="figure", groups=names, title="accuracy")


def size_bars(findings: HighlightFindings, operator: str | None = None) -> Chart:
    """Draw the share of spots of each size that break an image that is right when clean."""
    records, names = [], []
    for one in findings.of_grid(operator):
        names = [size.sigma for size in one.sizes]
        records += [
            {"model": one.model, "sigma": size.sigma, "share of failures": size.share.value, **vars(size.rate)}
            for size in one.sizes
        ]
    title, details = "share of spots that break", ["share of failures"]
    return grouped_bars(records, findings.models, group="sigma", groups=names, title=title, details=details)


def cell_map(findings: HighlightFindings, operator: str | None = None) -> Chart:
    """Draw, for each model, the share of spots in each cell that break it (Fig. 13)."""
    grid = findings.of_grid(operator)
    highest = max((rate for one in grid for rate in one.cells), default=0.0)
    records = []
    for one in grid:
        cells = max(1, math.isqrt(len(one.cells)))
        records += [
            {
                "model": one.model,
                "row": index // cells + 1,
                "column": index % cells + 1,
                "rate": rate,
                "bright": rate > 0.6 * highest,  # the square, so its number is dark
            }
            for index, rate in enumerate(one.cells)
        ]
    base = alt.Chart(inline_data(records)).encode(
        x=alt.X("column:O", title=None, axis=alt.Axis(labelAngle=0)), y=alt.Y("row:O", title=None)
    )
    legend = alt.Legend(format="%", title="spots that break")
    squares = base.mark_rect().encode(
        color=alt.Color("rate:Q", scale=alt.Scale(scheme="inferno"), legend=legend),
        tooltip=["model:N", "row:O", "column:O", *tooltips("rate")],
    )
    numbers = base.mark_text(fontSize=10).encode(
        text=alt.Text("rate:Q", format=".0%"), color=alt.condition("datum.bright", alt.value("black"), alt.value("white"))
    )
    layers = alt.layer(squares, numbers).properties(width=190, height=190)
    return layers.facet(alt.Facet("model:N", sort=findings.models, title=None), columns=4)


def location_bars(findings: HighlightFindings, operator: str | None = None) -> Chart:
    """Draw the share of failing spots inside the object's box (bars) and that of all spots (ticks) (Fig. 11)."""
    records = [
        {"model": one.model, "all spots": one.location.all.value, "images": one.location.images}
        | vars(one.location.failing)
        for one in findings.of_grid(operator)
        if one.location is not None and one.failing
    ]
    if not records:
        raise ConfigError("can't compare spots on and off the object: the data has no boxes, or no spot breaks a model")
    base = alt.Chart(inline_data(records)).encode(
        y=alt.Y("model:N", sort=findings.models, title=None, axis=alt.Axis(labelLimit=240)),
        tooltip=["model:N", *tooltips("value", "low", "high", "all spots"), "images:Q"],
    )
    title, scale = "share of failing spots that lie inside the box", alt.Scale(domain=[0, 1])
    bar = base.mark_bar(height=18).encode(
        x=alt.X("value:Q", scale=scale, axis=alt.Axis(format="%"), title=title),
        color=model_colour(findings.models, legend=False),
    )
    interval = base.mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q")
    tick = base.mark_tick(thickness=3, height=24, color="black").encode(x="all spots:Q")
    return alt.layer(bar, interval, tick).properties(width=560, height=alt.Step(34))
