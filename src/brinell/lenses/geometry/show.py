"""The report's part on motions that change a label."""

from __future__ import annotations

from brinell.lenses.geometry.charts import generator_shares, invariance_bars, misclassification, random_bars
from brinell.lenses.geometry.findings import Motions
from brinell.lenses.profile.charts import Figure
from brinell.report.section import Section, Told, pairs


def motion_section(told: Told, found: Motions) -> Section:
    """The table of scores and costs, the curves of random motions, and the smallest motions that fool."""
    falls = [
        {**fall, "before": told.names[fall["model"]](fall["from"]), "after": told.names[fall["model"]](fall["to"])}
        for fall in found.falls
    ]
    by_answer = found.against == "answer"
    return Section(
        template="motions.html",
        question="What is the smallest motion that changes the label?",
        what="smallest motions",
        found=found,
        options={**told.options, **({"criterion": "another label than on the clean image"} if by_answer else {})},
        charts=motion_figures(found),
        content={"breakers": pairs(told, found), "falls": falls},
    )


def motion_figures(found: Motions) -> dict[str, Figure]:
    """All figures of the paper's kind that the run has rows for."""
    charts: dict[str, Figure] = {}
    if any(one.fooled for one in found.smallest.values()):
        charts |= {"invariance": invariance_bars(found), "generators": generator_shares(found)}
    if found.rates:
        charts |= {"misclassification": misclassification(found), "random": random_bars(found)}
    return charts
