"""Hardness of a run's models, lens by lens, and which lenses it doesn't have."""

from __future__ import annotations

from brinell.lenses.analysis import analyses_of
from brinell.lenses.lens import LENSES
from brinell.report.cards import Rated
from brinell.runs.hardness import measure_hardness
from brinell.runs.run import Run


def rate(run: Run) -> list[Rated]:
    """Return the hardness of all models under each of the run's lenses that defines it."""
    scales = {name: analysis.reader.hardness for name, analysis in analyses_of(run).items()}
    return [Rated(name, scale, measure_hardness(run, scale)) for name, scale in scales.items() if scale is not None]


def describe_untested(run: Run) -> list[str]:
    """Return a sentence about each lens that the run doesn't have."""
    return [
        f"{lens.question} (lens: {lens.name})"
        for lens in LENSES.values()
        if lens.name not in run.measured and lens.package.startswith("brinell.")
    ]
