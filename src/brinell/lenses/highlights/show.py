"""The report's parts on spots of light, and on where models look."""

from __future__ import annotations

from brinell.lenses.highlights.charts import accuracy_bars, cell_map, drift_bars, place_bars, scene_bars, size_bars
from brinell.lenses.highlights.findings import Highlights
from brinell.lenses.photographs.findings import Photographs
from brinell.lenses.profile.charts import Figure
from brinell.report.section import Namer, Picture, Section, Told, inline, pairs
from brinell.runs.names import title
from brinell.runs.store import Store
from brinell.saliency.compare import Glance, read_glances
from brinell.saliency.findings import Attention


def highlight_section(told: Told, found: Highlights) -> Section:
    """Accuracies, sizes, places, and the images that the least light breaks."""
    return Section(
        template="highlight.html",
        question="Where does a spot of light break the model?",
        what="highlights",
        found=found,
        options=told.options,
        charts=_grid_charts(found, found.grids[0]) if found.grids else {},
        content={"breakers": pairs(told, found)},
    )


def highlight_figures(found: Highlights) -> dict[str, Figure]:
    """All figures of the paper's kind, for each grid."""
    charts: dict[str, Figure] = {}
    for operator in found.grids:
        name = operator.replace(":", "-")
        charts |= {f"{key}-{name}": chart for key, chart in _grid_charts(found, operator).items()}
    return charts


def _grid_charts(found: Highlights, operator: str) -> dict[str, Figure]:
    placed = any(one.place is not None and one.failing for (_, own), one in found.glare.items() if own == operator)
    return {
        "highlight-accuracy": accuracy_bars(found, operator),
        "highlight-sizes": size_bars(found, operator),
        "highlight-cells": cell_map(found, operator),
        **({"highlight-place": place_bars(found, operator)} if placed else {}),
    }


def photograph_section(told: Told, found: Photographs) -> Section:
    """Accuracies on scenes that were photographed under something real."""
    return Section(
        template="photographs.html",
        question="Does the model know what it sees when the light is real?",
        what="photographed variants",
        found=found,
        options=told.options,
        charts={"photographs": scene_bars(found)},
        content={},
    )


def attention_section(told: Told, found: Attention) -> Section:
    """How often attention moved, and pairs of maps."""
    shown, glances = [], read_glances(told.store)
    for model in found.models:
        own = [glance for glance in glances if glance.model == model]
        pictures = [_pair(told.store, glance, told.names[model]) for glance in own]
        if pictures:
            shown.append((model, pictures))
    return Section(
        template="attention.html",
        question="Where does the model look, and does that change?",
        what="attention",
        found=found,
        options=found.options,
        charts=attention_figures(found),
        content={"pairs": shown},
    )


def attention_figures(found: Attention) -> dict[str, Figure]:
    """The bars of attention that moved, by both rules."""
    if not found.moves:
        return {}
    return {"attention-moved": drift_bars(found), "attention-equal": drift_bars(found, "equal_moved")}


def _pair(store: Store, glance: Glance, name: Namer) -> Picture:
    lines = (
        f"clean: {name(glance.label)}",
        f"then: {name(glance.prediction)}",
        f"overlap of the hot parts {glance.overlap:.2f}",
    )
    return Picture(inline(store, glance.file), title(glance.operator), lines, False)
