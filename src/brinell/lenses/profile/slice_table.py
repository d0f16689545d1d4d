"""The tables of slices that a terminal prints: what loses most and least in each column of metadata."""

from __future__ import annotations

from brinell.lenses.profile.findings import ProfileFindings
from brinell.lenses.profile.groups import Group
from brinell.report.grid import Grid
from brinell.runs.slices import CLASS
from brinell.runs.words import format_share

ENDS = 3  # slices at each end of a column


def make_slice_tables(findings: ProfileFindings) -> list[Grid]:
    """Return a table for each model, where images have metadata."""
    grids = []
    for model in findings.models:
        affected = findings.affected.get(model)
        columns = {} if affected is None else affected.slices
        if not set(columns) - {CLASS}:
            continue
        rows = [
            (f"{column}={group.name}", str(group.images), f"{group.clean:.0%}", format_share(group.accuracy))
            for column, groups in columns.items()
            for group in _ends(groups)
        ]
        heads = ("slice", "images", "clean", "under change [95 %]")
        note = f"Of each column, the {ENDS} slices that lose most and the {ENDS} that lose least; the report has all."
        grids.append(Grid(heads, tuple(rows), f"{model} by slice", note, frozenset({0})))
    return grids


def _ends(groups: tuple[Group, ...]) -> tuple[Group, ...]:
    return groups if len(groups) <= 2 * ENDS else (*groups[:ENDS], *groups[-ENDS:])
