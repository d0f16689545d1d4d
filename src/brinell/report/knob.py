"""The report's part on smallest breaking changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from brinell.engine import Exhibit
from brinell.report.figures import Figure
from brinell.report.knob_figures import fooling_bars, robustness_bars, sides, threshold_curves
from brinell.report.section import Namer, Section, pairs
from brinell.results import Knobs, Store


def knob_section(
    store: Store, found: Knobs, options: Mapping[str, Any], exhibits: list[Exhibit], names: dict[str, Namer]
) -> Section:
    """The table of robustness, who is fooled and who survives, and the smallest changes that break."""
    return Section(
        template="knob.html",
        question="What is the smallest change that breaks the model?",
        what="smallest breaking changes",
        found=found,
        options=options,
        charts={
            "robustness": robustness_bars(found),
            "thresholds": threshold_curves(found),
            "fooling": fooling_bars(found),
            "sides": sides(found),
        },
        content={
            "breakers": pairs(store, found, exhibits, names),
        },
    )


def knob_figures(found: Knobs) -> dict[str, Figure]:
    """All figures of the paper's kind: robustness, fooling rates, and each property's curve and sides."""
    charts = {"robustness": robustness_bars(found), "fooling": fooling_bars(found)}
    for operator in found.operators:
        name = operator.replace(":", "-")
        charts[f"thresholds-{name}"] = threshold_curves(found, operator)
        charts[f"sides-{name}"] = sides(found, operator)
    return charts
