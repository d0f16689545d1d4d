"""Pictures for the report: the smallest changes that break a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from brinell.lenses.knob.breaks import find_smallest_breaks
from brinell.report.exhibits import Exhibit, clean_confidences
from brinell.runs.run import Run

SHOWN = 3  # images for each model and property


def select_exhibits(run: Run, options: Mapping[str, Any]) -> list[Exhibit]:
    """Return, for each model and property, the images that the smallest changes break."""
    clean = clean_confidences(run)
    return [
        Exhibit(
            lens="knob",
            model=one.model,
            operator=one.operator,
            image=one.image,
            parameters=one.severities,
            label=one.label,
            prediction=one.prediction,
            confidence=one.confidence,
            clean_confidence=clean[one.model, one.image],
            caption=run.format(one.operator, abs(one.amount)),
            field=one.level if options["resample"] else 0,
            level=one.level,
            detail=f"{options['distance']} {one.distance:.2g}",
            tag=one.tag,
        )
        for one in find_smallest_breaks(run, SHOWN, options["distance"])
    ]
