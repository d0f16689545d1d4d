"""The report's part on smallest breaking changes."""

from __future__ import annotations

from brinell.lenses.knob.charts import fooling_bars, robustness_bars, sides, threshold_curves
from brinell.lenses.knob.findings import Knobs
from brinell.lenses.profile.charts import Figure
from brinell.report.section import Section, Told, pairs


def knob_section(told: Told, found: Knobs) -> Section:
    """The table of robustness, who is fooled and who survives, and the smallest changes that break."""
    return Section(
        template="knob.html",
        question="What is the smallest change that breaks the model?",
        what="smallest breaking changes",
        found=found,
        options=told.options,
        charts={
            "robustness": robustness_bars(found),
            "thresholds": threshold_curves(found),
            "fooling": fooling_bars(found),
            "sides": sides(found),
        },
        content={"breakers": pairs(told, found)},
    )


def knob_figures(found: Knobs) -> dict[str, Figure]:
    """All figures of the paper's kind: robustness, fooling rates, and each property's curve and sides."""
    charts = {"robustness": robustness_bars(found), "fooling": fooling_bars(found)}
    for operator in found.operators:
        name = operator.replace(":", "-")
        charts[f"thresholds-{name}"] = threshold_curves(found, operator)
        charts[f"sides-{name}"] = sides(found, operator)
    return charts
