"""Figures of highlights and of attention, as Altair charts."""

from __future__ import annotations

import math
from typing import Any

import altair as alt

from brinell.errors import ConfigError
from brinell.lenses.highlights.findings import Glare, Highlights
from brinell.lenses.photographs.findings import Photographs
from brinell.lenses.profile.charts import PALETTE, Figure
from brinell.runs.names import title
from brinell.saliency.findings import Attention


def accuracy_bars(found: Highlights, operator: str | None = None) -> Figure:
    """Accuracy on originals, on all variants, and if so many failing variants make an image fail (Figs. 5 and 7)."""
    records, names = [], []
    for one in _of(found, operator):
        figures = {"top-1 on originals": one.top1, "S-average": one.average}
        figures |= {f"S ≥ {k}": value for k, value in one.at_least.items()}
        names = list(figures)
        records += [{"model": one.model, "figure": name, **vars(value)} for name, value in figures.items()]
    return _bars(records, found.models, "figure", names, "accuracy")


def scene_bars(found: Photographs) -> Figure:
    """The same of photographed variants (Fig. 7)."""
    records, names = [], []
    for one in found.scenes.values():
        figures = {"top-1 on originals": one.top1, "S-average": one.average}
        figures |= {f"S ≥ {k}": value for k, value in one.at_least.items()}
        names = list(figures)
        records += [{"model": one.model, "figure": name, **vars(value)} for name, value in figures.items()]
    return _bars(records, found.models, "figure", names, "accuracy")


def size_bars(found: Highlights, operator: str | None = None) -> Figure:
    """How many of the spots of each size break an image that was right, and their share of all failures."""
    records, names = [], []
    for one in _of(found, operator):
        names = [size.sigma for size in one.sizes]
        records += [
            {"model": one.model, "sigma": size.sigma, "share of failures": size.share.value, **vars(size.rate)}
            for size in one.sizes
        ]
    return _bars(records, found.models, "sigma", names, "share of spots that break", more="share of failures")


def cell_map(found: Highlights, operator: str | None = None) -> Figure:
    """Where spots break the model: a map of the grid for each (Fig. 13)."""
    records = []
    for one in _of(found, operator):
        cells = max(1, math.isqrt(len(one.cells)))
        most = max(rate for glare in _of(found, operator) for rate in glare.cells)
        records += [
            {
                "model": one.model,
                "row": place // cells + 1,
                "column": place % cells + 1,
                "rate": rate,
                "light": rate > 0.6 * most,  # the square, so the words on it are dark
            }
            for place, rate in enumerate(one.cells)
        ]
    base = alt.Chart(alt.InlineData(values=_known(records))).encode(
        x=alt.X("column:O", title=None, axis=alt.Axis(labelAngle=0)), y=alt.Y("row:O", title=None)
    )
    colour = alt.Color("rate:Q", scale=alt.Scale(scheme="inferno"), legend=alt.Legend(format="%", title="spots that break"))
    told = ["model:N", "row:O", "column:O", alt.Tooltip("rate:Q", format=".1%")]
    squares = base.mark_rect().encode(color=colour, tooltip=told)
    words = base.mark_text(fontSize=10).encode(
        text=alt.Text("rate:Q", format=".0%"), color=alt.condition("datum.light", alt.value("black"), alt.value("white"))
    )
    layers = alt.layer(squares, words).properties(width=190, height=190)
    return layers.facet(alt.Facet("model:N", sort=found.models, title=None), columns=4)


def place_bars(found: Highlights, operator: str | None = None) -> Figure:
    """The share of failures whose spot lies in the object's box (bars), and that of all spots (ticks) (Fig. 11)."""
    records = [
        {"model": one.model, "all": one.place.all.value, "images": one.place.images, **vars(one.place.failing)}
        for one in _of(found, operator)
        if one.place is not None and one.failing
    ]
    if not records:
        raise ConfigError("no failing spot is known to lie on an object or beside it: the data has no boxes, or none fails")
    base = alt.Chart(alt.InlineData(values=_known(records))).encode(
        y=alt.Y("model:N", sort=found.models, title=None, axis=alt.Axis(labelLimit=240)),
        tooltip=[
            "model:N",
            *(alt.Tooltip(f"{name}:Q", format=".1%") for name in ("value", "low", "high", "all")),
            "images:Q",
        ],
    )
    scale = alt.Scale(domain=[0, 1])
    bar = base.mark_bar(height=18).encode(
        x=alt.X("value:Q", scale=scale, axis=alt.Axis(format="%"), title="share of failing spots that lie inside the box"),
        color=alt.Color("model:N", sort=found.models, scale=alt.Scale(range=PALETTE), legend=None),
    )
    reach = base.mark_rule(strokeWidth=2).encode(x="low:Q", x2="high:Q")
    advance = base.mark_tick(thickness=3, height=24, color="black").encode(x="all:Q")
    return alt.layer(bar, reach, advance).properties(width=560, height=alt.Step(34))


def drift_bars(found: Attention, rule: str = "moved") -> Figure:
    """How often attention moved, where the model fails and where it does not (Fig. 10)."""
    kinds = ["fails", "does not fail"]
    records = [
        {
            "model": one.model,
            "under": title(one.operator),
            "kind": kinds[not one.failed],
            "pairs": one.pairs,
            **vars(getattr(one, rule)),
        }
        for one in found.moves
        if one.pairs and getattr(one, rule).value == getattr(one, rule).value
    ]
    base = alt.Chart(alt.InlineData(values=_known(records))).encode(
        y=alt.Y("model:N", sort=found.models, title=None, axis=alt.Axis(labelLimit=240)),
        yOffset=alt.YOffset("kind:N", sort=kinds),
        tooltip=[
            "model:N",
            "under:N",
            "kind:N",
            *(alt.Tooltip(f"{name}:Q", format=".0%") for name in ("value", "low", "high")),
            "pairs:Q",
        ],
    )
    words = "share of pairs whose attention lies in another cell" + (" (equal cells)" if rule == "equal_moved" else "")
    bar = base.mark_bar(height=12).encode(
        x=alt.X("value:Q", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%"), title=words),
        color=alt.Color("kind:N", sort=kinds, scale=alt.Scale(range=["#c0392b", "#9aa5b1"]), title="the model"),
    )
    reach = base.mark_rule(strokeWidth=1.5).encode(x="low:Q", x2="high:Q")
    layers = alt.layer(bar, reach).properties(width=520, height=alt.Step(14))
    return layers.facet(alt.Facet("under:N", title=None), columns=1)


def _of(found: Highlights, operator: str | None) -> list[Glare]:
    """A grid's figures of every model."""
    own = operator or (found.grids[0] if found.grids else "")
    return [found.glare[model, own] for model in found.models if (model, own) in found.glare]


def _known(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records without what can't be told: NaN is no JSON."""
    return [{name: value for name, value in record.items() if value == value} for record in records]


def _bars(
    records: list[dict[str, Any]], models: list[str], kind: str, names: list[str], what: str, more: str | None = None
) -> Figure:
    """Bars side by side for each model, with intervals."""
    base = alt.Chart(alt.InlineData(values=_known(records))).encode(
        x=alt.X("model:N", sort=models, title=None, axis=alt.Axis(labelAngle=0, labelLimit=200)),
        xOffset=alt.XOffset(f"{kind}:N", sort=names),
        tooltip=[
            "model:N",
            f"{kind}:N",
            *(alt.Tooltip(f"{name}:Q", format=".1%") for name in ("value", "low", "high")),
            *([alt.Tooltip(f"{more}:Q", format=".1%")] if more else []),
        ],
    )
    bar = base.mark_bar().encode(
        y=alt.Y("value:Q", axis=alt.Axis(format="%"), title=what),
        color=alt.Color(f"{kind}:N", sort=names, scale=alt.Scale(range=PALETTE), title=None),
    )
    reach = base.mark_rule(strokeWidth=1.5).encode(y="low:Q", y2="high:Q")
    return alt.layer(bar, reach).properties(width=max(240, 180 * len(models)), height=300)
