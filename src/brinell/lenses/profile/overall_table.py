"""The table of figures over all degradations that a terminal prints."""

from __future__ import annotations

from brinell.lenses.profile.findings import ProfileFindings
from brinell.lenses.profile.replicates import TITLES, UNBOUNDED
from brinell.lenses.profile.robustness import REPLICATED, Robustness
from brinell.report.grid import Grid
from brinell.runs.statistics import Estimate
from brinell.runs.words import format_mean, format_share


def make_overall_tables(findings: ProfileFindings) -> list[Grid]:
    """Return the table: a row for each figure that a model has, the models side by side."""
    found = [findings.robustness[model] for model in findings.models if model in findings.robustness]
    if not found or len(found) < len(findings.models):
        return []
    rows: list[tuple[str, ...]] = [
        ("accuracy under change", *(format_share(one.accuracy) for one in found)),
        (
            "under the worst operator",
            *(f"{format_share(one.worst)} ({findings.title(one.worst_operator)})" for one in found),
        ),
        ("right at every level", *(format_share(one.always) for one in found)),
    ]
    for name in REPLICATED:
        values = [getattr(one, name) for one in found]
        if any(value is not None for value in values):
            rows.append((TITLES[name][0], *(_format(name, value) for value in values)))
    if any(one.effective is not None for one in found):
        baseline = next(one.baseline for one in found if one.baseline is not None)
        rows.append((f"effective robustness (against {baseline})", *map(_points, found)))
    note = "Levels from 1 on, every operator counting equally."
    return [Grid(("over all degradations", *findings.models), tuple(rows), note=note)]


def _format(name: str, value: Estimate | None) -> str:
    if value is None:
        return ""
    return format_mean(value) if name in UNBOUNDED else format_share(value)


def _points(found: Robustness) -> str:
    one = found.effective
    return "" if one is None else f"{100 * one.value:+.1f} [{100 * one.low:+.1f}, {100 * one.high:+.1f}] points"
