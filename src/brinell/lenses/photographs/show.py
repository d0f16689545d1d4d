"""How the findings of the photographs lens are shown: table, chart and report section."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from brinell.lenses.photographs import LENS
from brinell.lenses.photographs.findings import PhotographFindings
from brinell.report.show import Chart, Context, NamedChart, Section, Show, lazy_chart

scene_bars = lazy_chart("brinell.lenses.photographs.charts:scene_bars")


def table(findings: PhotographFindings) -> list[Any]:
    """Return accuracy on originals and their variants."""
    shown = Table(title="\nphotographed variants", title_justify="left", title_style="bold")
    counts = list(next(iter(findings.scenes.values())).at_least)
    heads = ("model", "scenes", "top-1", "S-average", *(f"S ≥ {k}" for k in counts), *(f"S ≥ {k}*" for k in counts))
    for head in heads:
        shown.add_column(head)
    for model in findings.models:
        one = findings.scenes[model]
        figures = [one.top1, one.average, *one.at_least.values(), *one.over_right.values()]
        shares = (f"{each.value:.1%}\n{100 * each.low:.0f}–{100 * each.high:.0f}" for each in figures)
        shown.add_row(model, str(one.scenes), *shares)
    return [shown, "* over scenes whose original is right", *(findings.verdict(model) for model in findings.models)]


def section(context: Context, findings: PhotographFindings) -> Section:
    """Return accuracies on the originals and their variants."""
    return Section(
        template="brinell.lenses.photographs:section.html",
        question=LENS.question,
        topic="photographed variants",
        findings=findings,
        options=context.options,
        charts=charts(findings),
    )


def charts(findings: PhotographFindings) -> dict[str, Chart]:
    """Return the only chart."""
    return {"photographs": scene_bars(findings)}


SHOW = Show(table=table, section=section, charts=charts, named={"photographs": NamedChart(scene_bars)})
