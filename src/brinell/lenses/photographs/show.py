"""How the findings of the photographs lens are shown: table, chart and report section."""

from __future__ import annotations

from typing import Any

from brinell.lenses.photographs.findings import PhotographFindings
from brinell.lenses.photographs.section import make_section
from brinell.report.grid import Grid
from brinell.report.show import Chart, NamedChart, Show, lazy_chart
from brinell.runs.words import format_share

scene_bars = lazy_chart("brinell.lenses.photographs.charts:scene_bars")


def table(findings: PhotographFindings) -> list[Any]:
    """Return accuracy on originals and their variants."""
    counts = list(next(iter(findings.scenes.values())).at_least)
    heads = ("model", "scenes", "top-1", "S-average", *(f"S ≥ {k}" for k in counts), *(f"S ≥ {k}*" for k in counts))
    rows = []
    for model in findings.models:
        one = findings.scenes[model]
        figures = [one.top1, one.average, *one.at_least.values(), *one.over_right.values()]
        rows.append((model, str(one.scenes), *(format_share(each).replace(" ", "\n") for each in figures)))
    note = "S ≥ k: a scene fails once k of its variants do. * over scenes whose original is right."
    shown = Grid(heads, tuple(rows), "photographed variants", note)
    return [shown, *(findings.verdict(model) for model in findings.models)]


def charts(findings: PhotographFindings) -> dict[str, Chart]:
    """Return the only chart."""
    return {"photographs": scene_bars(findings)}


SHOW = Show(
    table=table,
    section=make_section,
    charts=charts,
    named={"photographs": NamedChart(scene_bars)},
    late=("brinell.lenses.photographs.charts",),
)
