"""What the profile lens adds to a comparison of runs: failure points before and after."""

from __future__ import annotations

from collections.abc import Sequence

from brinell.lenses.reader import Compared, ComparisonTable
from brinell.runs.statistics import THRESHOLDS, first_below


def compare_failure_points(deltas: Sequence[Compared]) -> ComparisonTable | None:
    """Return the first level at which accuracy drops below each threshold, old and new, over the same images."""
    curves: dict[str, list[Compared]] = {}
    for delta in deltas:
        if delta.measure.name == "accuracy":
            curves.setdefault(delta.operator, []).append(delta)
    if not curves:
        return None
    records = [
        {
            "operator": operator,
            "threshold": threshold,
            "old": first_below([delta.old for delta in levels], threshold),
            "new": first_below([delta.new for delta in levels], threshold),
        }
        for operator, levels in curves.items()
        for threshold in THRESHOLDS
    ]
    rows = []
    for operator, levels in curves.items():
        own = [record for record in records if record["operator"] == operator]
        cells = (f"{_format(record['old'])} → {_format(record['new'])}" for record in own)
        rows.append((levels[0].title, *cells))
    return ComparisonTable(
        name="failure_points",
        title="Failure points",
        note="The first level at which accuracy drops below a threshold, before → after.",
        heads=("", *(f"{threshold:.0%}" for threshold in THRESHOLDS)),
        rows=tuple(sorted(rows)),
        records=tuple(records),
    )


def _format(level: object) -> str:
    return "never" if level is None else str(level)
