"""How the mirror lens shows its findings."""

from __future__ import annotations

from typing import Any

import altair as alt

from brinell.report.exhibits import pair_groups
from brinell.report.grid import Grid
from brinell.report.section import Block, Cell, Chart, Figure, Gallery, Section, Table, share
from brinell.report.show import Context, NamedChart, Show
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
    rows = [
        [Cell(operator), *(share(found.mirrored[model, operator]) for model in found.models)]
        for operator in found.operators
    ]
    alt = "Accuracy on mirrored images, for each operator and model."
    return Section(
        question="Does the model survive mirrored images?",
        topic="mirrored images",
        findings=found,
        options=context.options,
        blocks=[
            Block(
                "",
                "Accuracy on mirrored images.",
                Figure("mirrored", alt, [chart(found)], found.table()),
                Table(["operator", *found.models], rows),
            )
        ],
        galleries=[Gallery("Images that mirroring breaks", "", pair_groups(context, "mirror", found))],
    )


SHOW = Show(
    table=table, section=section, charts=lambda found: {"mirrored": chart(found)}, named={"mirrored": NamedChart(chart)}
)
