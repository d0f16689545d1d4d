"""The lens's tables for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from brinell.lenses.fragility.findings import FragilityFindings
from brinell.lenses.fragility.names import KINDS
from brinell.lenses.fragility.queries import FragileShare
from brinell.report.grid import Grid
from brinell.runs.words import format_share

if TYPE_CHECKING:
    from brinell.lenses.fragility.human import Comparison  # imports numpy


def findings_table(findings: FragilityFindings) -> list[Any]:
    """Return the shares of fragile windows by size, and the verdict, for each model."""
    printed: list[Any] = []
    heads = ("windows", *KINDS, "right", "images")
    for model in findings.models:
        rows = []
        for operator in findings.operators:
            shares = [findings.share(model, operator, kind) for kind in KINDS]
            first = next((share for share in shares if share is not None), None)
            if first is not None:
                recognised = format_share(first.recognised).replace(" ", "\n") if first.images else "–"
                rows.append((findings.title(operator), *map(_format_share, shares), recognised, str(first.images)))
        if rows:
            note = "Fragile windows, judged by right or wrong, with 95 % intervals over images."
            printed.append(Grid(heads, tuple(rows), model, note))
        printed.append(findings.verdict(model))
    if findings.sampled:
        printed.append(f"{findings.sampled} was judged, each against its one-pixel neighbours.")
    for operator, count in findings.too_small.items():
        printed.append(f"Images too small for {findings.title(operator)}: {count}.")
    return printed


def _format_share(share: FragileShare | None) -> str:
    if share is None or not share.images:
        return "–"
    return format_share(share.share).replace(" ", "\n")


def comparison_table(comparisons: dict[str, list[Comparison]]) -> list[Any]:
    """Return people's minimal images next to each model's."""
    printed: list[Any] = []
    for model, images in comparisons.items():
        rows = tuple(
            (one.image, str(one.people), str(one.model), _format_iou(one.position_iou), _format_iou(one.area_iou))
            for one in images
        )
        table = Grid(("image", "people", "model", "IoU of positions", "IoU of areas"), rows, model)
        people, own = (sum(getattr(one, name) for one in images) / len(images) for name in ("people", "model"))
        printed += [table, f"Minimal images per image: {people:.1f} for people, {own:.1f} for {model}."]
    return printed


def _format_iou(value: float) -> str:
    return "–" if value != value else f"{value:.1%}"
