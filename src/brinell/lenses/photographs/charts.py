"""The chart of the photographs lens."""

from __future__ import annotations

from brinell.lenses.photographs.findings import PhotographFindings, Scenes
from brinell.report.charts import Chart, grouped_bars
from brinell.runs.statistics import Estimate


def accuracies(one: Scenes) -> dict[str, Estimate]:
    """Return the accuracies of a model by their names."""
    return {
        "top-1 on originals": one.top1,
        "S-average": one.average,
        **{f"S ≥ {k}": value for k, value in one.at_least.items()},
    }


def scene_bars(findings: PhotographFindings) -> Chart:
    """Draw accuracy on originals, on all variants, and if k failing variants make a scene fail (the paper's Fig. 7)."""
    records, names = [], []
    for one in findings.scenes.values():
        figures = accuracies(one)
        names = list(figures)
        records += [{"model": one.model, "figure": name, **vars(value)} for name, value in figures.items()]
    return grouped_bars(records, findings.models, group="figure", groups=names, title="accuracy")
