"""Charts of the highlights lens."""

from __future__ import annotations

import math

import altair as alt

from brinell.errors import ConfigError
from brinell.lenses.highlights.findings import HighlightFindings
from brinell.lenses.highlights.glare import Glare
from brinell.report.charts import Chart, grouped_bars, inline_data, model_colour, tooltips
from brinell.report.figures import INK
from brinell.report.panels import PANEL_WIDTH
from brinell.runs.statistics import Estimate


def accuracies(one: Glare) -> dict[str, Estimate]:
    """Return the accuracies of a model by their names."""
    return {
        "top-1 on originals": one.top1,
        "S-average": one.average,
        **{f"S ≥ {k}": value for k, value in one.at_least.items()},
    }


def accuracy_bars(findings: HighlightFindings, operator: str | None = None) -> Chart:
    """Draw accuracy on originals, on all variants, and if k failing variants fail an image (the paper's Figs. 5, 7)."""
    records, names = [], []
    for one in findings.of_grid(operator):
        figures = {name: value for name, value in accuracies(one).items() if not math.isnan(value.value)}
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
    return alt.concat(*cell_panels(findings, operator), columns=4)


def cell_panels(findings: HighlightFindings, operator: str | None = None) -> list[Chart]:
    """Return a map of the cells for each model, in the same colours."""
    grid = findings.of_grid(operator)
    highest = max((rate for one in grid for rate in one.cells), default=0.0)
    return [_cells(one, highest) for one in grid]


def _cells(one: Glare, highest: float) -> Chart:
    cells = max(1, math.isqrt(len(one.cells)))
    records = [
        {
            "row": index // cells + 1,
            "column": index % cells + 1,
            "rate": rate,
            "bright": rate > 0.6 * highest,  # the square, so its number is dark
            "text": f"row {index // cells + 1}, column {index % cells + 1}: {rate:.1%} of spots break",
        }
        for index, rate in enumerate(one.cells)
    ]
    base = alt.Chart(inline_data(records)).encode(
        x=alt.X("column:O", title=None, axis=alt.Axis(labelAngle=0)), y=alt.Y("row:O", title=None)
    )
    scale = alt.Scale(scheme="inferno", domain=[0, highest or 1])
    squares = base.mark_rect().encode(color=alt.Color("rate:Q", scale=scale, legend=None), description="text:N")
    numbers = base.mark_text(fontSize=10).encode(
        text=alt.Text("rate:Q", format=".0%"), color=alt.condition("datum.bright", alt.value("black"), alt.value("white"))
    )
    title = alt.TitleParams(one.model, limit=PANEL_WIDTH + 40)
    return alt.layer(squares, numbers).properties(width=PANEL_WIDTH, height=PANEL_WIDTH, title=title)


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
    tick = base.mark_tick(thickness=3, height=24, color=INK).encode(x="all spots:Q")
    return alt.layer(bar, interval, tick).properties(width=560, height=alt.Step(34))
