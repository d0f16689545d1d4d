"""How the mirror lens shows its findings."""

from __future__ import annotations

from typing import Any

import altair as alt

from brinell.report.exhibits import pairs
from brinell.report.grid import Grid
from brinell.report.show import Chart, Context, NamedChart, Section, Show
from brinell.runs.words import format_share
from brinell_mirror.findings import MirrorFindings


def table(found: MirrorFindings) -> list[Any]:
    """Return the terminal's table and a sentence per model."""
    rows = tuple(
        (model, operator, format_share(found.clean[model, operator]), format_share(value))
        for (model, operator), value in found.mirrored.items()
    )
    shown = Grid(("model", "operator", "clean [95 %]", "mirrored [95 %]"), rows)
    return [shown, *(found.verdict(model) for model in found.models)]


def chart(found: MirrorFindings) -> Chart:
    """Draw the accuracy of each operator."""
    data = alt.InlineData(values=found.table())
    return alt.Chart(data).mark_bar().encode(x="value:Q", y="operator:N", color="model:N")


def section(context: Context, found: MirrorFindings) -> Section:
    """Return the report's section."""
    return Section(
        template="brinell_mirror:section.html",
        question="Does the model survive mirrored images?",
        topic="mirrored images",
        findings=found,
        options=context.options,
        charts={"mirrored": chart(found)},
        content={"breakers": pairs(context, "mirror", found)},
    )


SHOW = Show(
    table=table, section=section, charts=lambda found: {"mirrored": chart(found)}, named={"mirrored": NamedChart(chart)}
)
