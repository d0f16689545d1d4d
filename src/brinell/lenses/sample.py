"""What a budget left out of a run, in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from brinell.lenses.lens import LENSES
from brinell.runs.run import Run

_SAMPLED = "select lens, operator from rows group by all having count(inclusion) > 0 order by all"


def sampled_cells(run: Run, lens: str | None = None) -> list[str]:
    """Return what a budget chose of each image, such as levels, by all lenses or one; empty if it chose none, or images."""
    if not run.sampled:
        return []
    nouns = [LENSES[name].reader.cells(operator) for name, operator in run.query(_SAMPLED) if lens in (None, name)]
    return list(dict.fromkeys(noun for noun in nouns if noun is not None))


def describe_sample(run: Run) -> str:
    """Return what was sampled, in a sentence; empty if nothing was left out."""
    if not run.sampled:
        return ""
    parts: dict[str, list[str]] = {}
    for lens, operator in run.query(_SAMPLED):
        noun = LENSES[lens].reader.cells(operator)
        part = _describe_part(run.manifest["budget"], noun)
        lenses = parts.setdefault(part, [])
        lenses += [] if lens in lenses else [lens]
    what = ", ".join(f"{part} ({' and '.join(lenses)})" for part, lenses in parts.items())
    return f"Sampled under a budget: {what}, chosen at random; intervals allow for what was left out." if what else ""


def _describe_part(budget: Mapping[str, Any], noun: str | None) -> str:
    """Return what was chosen: images, or cells of each image; a run that stopped early has cells of some images."""
    images = f"{budget['images']:,} of {budget['of']:,} images"
    if noun is None:
        return images
    share = max(budget["share"], budget.get("cells", 0.0))
    stopped = f", {images}" if "cells" in budget and budget["images"] < budget["of"] else ""
    return f"{100 * share:.3g}% of each image's {noun}{stopped}"
