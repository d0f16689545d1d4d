"""The lens's tables for a terminal."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from brinell.lenses.fragility.findings import FragilityFindings
from brinell.lenses.fragility.fragile import KINDS
from brinell.lenses.fragility.human import Comparison
from brinell.lenses.fragility.queries import FragileShare


def findings_table(findings: FragilityFindings) -> list[Any]:
    """Return the shares of fragile windows by size, and the verdict, for each model."""
    printed: list[Any] = []
    for model in findings.models:
        table = _titled(model)
        table.add_column("windows", no_wrap=True)
        for kind in KINDS:
            table.add_column(kind, justify="right", overflow="fold")
        table.add_column("right", justify="right")
        table.add_column("images", justify="right")
        for operator in findings.operators:
            shares = [findings.share(model, operator, kind) for kind in KINDS]
            first = next((share for share in shares if share is not None), None)
            if first is not None:
                recognised = f"{first.recognised.value:.1%}" if first.images else "–"
                table.add_row(findings.title(operator), *map(_format_share, shares), recognised, str(first.images))
        if table.row_count:
            printed += [table, "Fragile windows, judged by right or wrong, with 95 % intervals over images."]
        printed.append(findings.verdict(model))
    if findings.sampled:
        printed.append(f"{findings.sampled} was judged, each against its one-pixel neighbours.")
    for operator, count in findings.too_small.items():
        printed.append(f"Images too small for {findings.title(operator)}: {count}.")
    return printed


def _format_share(share: FragileShare | None) -> str:
    if share is None or not share.images:
        return "–"
    estimate = share.share
    digits = 1 if estimate.high < 0.1 else 0  # four kinds have to fit on a line
    interval = f"\n{100 * estimate.low:.{digits}f}–{100 * estimate.high:.{digits}f}" if share.images > 1 else ""
    return f"{estimate.value:.2%}{interval}"


def comparison_table(comparisons: dict[str, list[Comparison]]) -> list[Any]:
    """Return people's minimal images next to each model's."""
    printed: list[Any] = []
    for model, images in comparisons.items():
        table = _titled(model)
        table.add_column("image")
        for head in ("people", "model", "IoU of positions", "IoU of areas"):
            table.add_column(head, justify="right")
        for one in images:
            ious = (_format_iou(value) for value in (one.position_iou, one.area_iou))
            table.add_row(one.image, str(one.people), str(one.model), *ious)
        people, own = (sum(getattr(one, name) for one in images) / len(images) for name in ("people", "model"))
        printed += [table, f"Minimal images per image: {people:.1f} for people, {own:.1f} for {model}."]
    return printed


def _titled(model: str) -> Table:
    return Table(title=f"\n{model}", title_justify="left", title_style="bold")


def _format_iou(value: float) -> str:
    return "–" if value != value else f"{value:.1%}"
