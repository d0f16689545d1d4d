"""Two models compared, of one run or of two: what `brinell compare` says, as plain data."""

from __future__ import annotations

from typing import Any

from brinell.comparison.compare import Comparison, Delta, compare_runs, format_change
from brinell.comparison.measures import describe_measure, format_value
from brinell.runs.run import Run


def compare_models(old: tuple[Run, str], new: tuple[Run, str]) -> dict[str, Any]:
    """Return how the new model differs from the old one: a sentence, and a row per measure and operator."""
    runs = [old[0]] if old[0] is new[0] else [old[0], new[0]]
    found = compare_runs(runs, [f"{old[1]}={new[1]}"], common_images=True)
    return {
        "title": found.pairs[0].title,
        "images": len(found.pairs[0].images),
        "notes": [*found.pairs[0].notes, *found.left_out],
        "verdict": found.verdict(0),
        "measures": [
            {
                "name": measure.name,
                "lens": measure.lens,
                "what": describe_measure(measure),
                "deltas": [_describe(found, delta) for delta in found.select(0, measure.name)],
            }
            for measure in found.measures(0)
            if not measure.by_level
        ],
    }


def _describe(found: Comparison, delta: Delta) -> dict[str, Any]:
    return {
        "operator": delta.operator,
        "title": delta.title,
        "old": format_value(delta.measure, delta.old),
        "new": format_value(delta.measure, delta.new),
        "change": format_change(delta),
        "gain": delta.gain,
        "worse": delta.worse,
        "better": delta.better,
        "verdict": delta.verdict(found.alpha),
    }
