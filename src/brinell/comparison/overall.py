"""Figures of a model over everything that its lenses measured, which leaderboards show and don't rank."""

from __future__ import annotations

from collections.abc import Sequence

from brinell.comparison.pairing import Subject
from brinell.lenses.lens import LENSES
from brinell.runs.statistics import Estimate


def read_overall(subjects: Sequence[Subject], baseline: Sequence[Subject]) -> dict[str, Estimate]:
    """Return what a model's lenses say over everything that they measured; the first model is the baseline."""
    found: dict[str, Estimate] = {}
    for subject in subjects:
        for lens in (LENSES[name] for name in subject.run.lenses if name in LENSES):
            first = next(((one.run, one.model) for one in baseline if lens.name in one.run.lenses), None)
            if lens.reader.overall is not None:
                found |= lens.reader.overall(subject.run, subject.model, first)
    return found
