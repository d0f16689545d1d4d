"""Counts of fragile windows: the maps of one image as rows, and rows as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import torch

from brinell.lenses.fragility.fragile import (
    JudgedBy,
    Move,
    WindowAnswers,
    find_fragile,
    find_inside,
    find_largest_drop,
)
from brinell.lenses.fragility.names import KINDS
from brinell.lenses.fragility.windows import Array, Mask, Neighbourhood
from brinell.lenses.method import Categorical, Columns, Nullable

MEASURED, TOO_SMALL, MINIMAL_IMAGE, NOT_RECOGNISED, CUT, NO_END = range(6)
STATUSES = ("measured", "too small", "minimal", "not recognised", "minimal, not all searched", "recognised to the end")
WAYS: tuple[JudgedBy, ...] = get_args(JudgedBy)
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


def count_rows(
    windows: Neighbourhood, large: WindowAnswers, small: WindowAnswers | None, box: Array | None, *, neighbours: int
) -> list[Row]:
    """Return one row per kind of fragility, judged by correctness and by label; `box` is the object's, where known."""
    moves: list[tuple[Move, WindowAnswers]] = [("shift", large)]
    if small is not None:
        moves.append(("shrink", small))
    inside = None if box is None else find_inside(windows.judged, box)
    rows = []
    for move, after in moves:
        for by in WAYS:
            found = find_fragile(windows, large, after, move, by=by, neighbours=neighbours)
            for degree, flips in (("loose", found.loose), ("strict", found.strict)):
                row: Row = {"kind": f"{degree} {move}", "judged_by": by, "side": windows.judged.side}
                row |= {"windows": _count(found.judged), "recognised": _count(found.correct & found.judged)}
                row |= {"fragile": _count(flips)}
                if by == "correct":
                    row |= {"lost": _count(flips & found.correct), "gained": _count(flips & ~found.correct)}
                if inside is not None:
                    row |= {"inside": _count(inside & found.judged), "inside_fragile": _count(inside & flips)}
                rows.append(row)
        pair = find_largest_drop(windows, large, after, move, neighbours=neighbours)
        if pair is not None:
            first = next(row for row in rows if row["kind"] == f"loose {move}" and row["judged_by"] == "correct")
            first |= {"x": pair.left, "y": pair.top, "to_x": pair.to_left, "to_y": pair.to_top, "drop": pair.drop}
    return rows


def to_columns(rows: Sequence[Row], *, sampled: bool = False) -> Columns:
    """Return rows, each with its `sample`, as columns; values that a row lacks are null.

    Rows that are `sampled` have an inclusion.
    """
    columns: Columns = {
        "sample": torch.tensor([row["sample"] for row in rows], dtype=torch.int64),
        "status": Categorical(torch.tensor([row.get("status", MEASURED) for row in rows]), STATUSES),
        "kind": _categorical([row.get("kind") for row in rows], KINDS),
        "judged_by": _categorical([row.get("judged_by") for row in rows], WAYS),
        "drop": _nullable([row.get("drop") for row in rows], torch.float32),
    }
    if sampled:
        columns["inclusion"] = torch.tensor([row["inclusion"] for row in rows], dtype=torch.float64)
    return columns | {name: _nullable([row.get(name) for row in rows], torch.int64) for name in COUNTS}


def _count(mask: Mask) -> int:
    return int(mask.sum())


def _categorical(values: list[str | None], categories: Sequence[str]) -> Categorical:
    codes = [-1 if value is None else categories.index(value) for value in values]
    return Categorical(torch.tensor(codes), tuple(categories))


def _nullable(values: list[Any], dtype: torch.dtype) -> Nullable:
    valid = torch.tensor([value is not None for value in values])
    return Nullable(torch.tensor([value or 0 for value in values], dtype=dtype), valid)
