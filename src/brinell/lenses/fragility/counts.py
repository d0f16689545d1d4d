"""Fragile windows counted: maps of one image to rows, and rows to columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import torch
from torch import Tensor

from brinell.lenses.fragility.fragile import KINDS, Answers, By, Change, best_pair, fragile, inside
from brinell.lenses.fragility.windows import Neighbourhood
from brinell.lenses.method import Categorical, Columns, Nullable

MEASURED, TOO_SMALL, MINIMAL_IMAGE, NOT_RECOGNISED, CUT, NO_END = range(6)
STATES = ("measured", "too small", "minimal", "not recognised", "minimal, not all searched", "recognised to the end")
BYS: tuple[By, ...] = get_args(By)
COUNTS = (
    "side",
    "windows",
    "recognised",
    "fragile",
    "lost",
    "gained",
    "inside",
    "inside_fragile",
    "x",
    "y",
    "to_x",
    "to_y",
)

Row = dict[str, Any]


def counted_rows(
    hood: Neighbourhood, large: Answers, small: Answers | None, box: Tensor | None, neighbours: int
) -> list[Row]:
    """A row for each kind of fragility, by correctness and by label; `box` is where the object is, if anyone knows."""
    changes: list[tuple[Change, Answers]] = [("shift", large)]
    if small is not None:
        changes.append(("shrink", small))
    within = None if box is None else inside(hood.judged, box)
    rows = []
    for change, after in changes:
        for by in BYS:
            found = fragile(hood, large, after, change, by, neighbours)
            for degree, flips in (("loose", found.loose), ("strict", found.strict)):
                row: Row = {"kind": f"{degree} {change}", "judged_by": by, "side": hood.judged.side}
                row |= {"windows": _sum(found.judged), "recognised": _sum(found.correct & found.judged)}
                row |= {"fragile": _sum(flips)}
                if by == "correct":
                    row |= {"lost": _sum(flips & found.correct), "gained": _sum(flips & ~found.correct)}
                if within is not None:
                    row |= {"inside": _sum(within & found.judged), "inside_fragile": _sum(within & flips)}
                rows.append(row)
        pair = best_pair(hood, large, after, change, neighbours)
        if pair is not None:
            first = next(row for row in rows if row["kind"] == f"loose {change}" and row["judged_by"] == "correct")
            first |= {"x": pair.left, "y": pair.top, "to_x": pair.to_left, "to_y": pair.to_top, "fall": pair.drop}
    return rows


def columns_of(rows: Sequence[Row]) -> Columns:
    """Rows, each with its `sample`, as columns; what a row doesn't say is empty."""
    columns: Columns = {
        "sample": torch.tensor([row["sample"] for row in rows]),
        "status": Categorical(torch.tensor([row.get("status", MEASURED) for row in rows]), STATES),
        "kind": _words([row.get("kind") for row in rows], KINDS),
        "judged_by": _words([row.get("judged_by") for row in rows], BYS),
        "fall": _known([row.get("fall") for row in rows], torch.float32),
    }
    return columns | {name: _known([row.get(name) for row in rows], torch.int64) for name in COUNTS}


def _sum(windows: Tensor) -> int:
    return int(windows.sum())


def _words(values: list[str | None], words: Sequence[str]) -> Categorical:
    return Categorical(torch.tensor([-1 if value is None else words.index(value) for value in values]), tuple(words))


def _known(values: list[Any], dtype: torch.dtype) -> Nullable:
    there = torch.tensor([value is not None for value in values])
    return Nullable(torch.tensor([value or 0 for value in values], dtype=dtype), there)
