"""A run in a few numbers for the start page: hardness by lens, what each model is weakest under, and a telling image."""

from __future__ import annotations

from typing import Any

import numpy as np

from brinell.viewer.digest import STRONGEST, SURVIVED, WRONG, Cells, Digest
from brinell.viewer.values import HARDNESS


def headline(digest: Digest) -> list[dict[str, Any]]:
    """Return each model's hardness under each lens, from 0 to 100, what it is weakest under, and a telling image."""
    found = []
    for model, cells in digest.cells.items():
        tested = (cells.first < WRONG) | (cells.first == SURVIVED)
        survived = np.where(cells.first == SURVIVED, STRONGEST, cells.first) / STRONGEST
        means = [
            (float(one[own].mean()), number)
            for number, (one, own) in enumerate(zip(survived, tested, strict=True))
            if own.any()
        ]
        easiest = _easiest(cells) if means else None
        found.append(
            {
                "model": model,
                "hardness": hardness_of(digest, cells),
                "weakest": None if easiest is None else _weakest(digest, cells, min(means)[1], easiest),
                "clean": _clean_share(cells),
                "image": None if easiest is None else digest.images["id"][easiest],
            }
        )
    return found


def _weakest(digest: Digest, cells: Cells, number: int, easiest: int) -> dict[str, Any]:
    """Return a column, and an image that shows it: the one that breaks most easily, if it breaks there at all."""
    column, first = digest.columns[number], cells.first[number]
    image = easiest if first[easiest] < WRONG else int(first.argmin())
    return {
        "lens": column.lens,
        "operator": column.operator,
        "title": column.title,
        "column": number,
        "image": digest.images["id"][image],
    }


def hardness_of(digest: Digest, cells: Cells) -> list[dict[str, Any]]:
    """Return a model's hardness lens by lens: the mean over images of the mean over operators (docs/hardness.md)."""
    found = []
    for lens in dict.fromkeys(column.lens for column in digest.columns):
        own = [number for number, one in enumerate(digest.columns) if one.lens == lens and one.measure == HARDNESS]
        counted = [number for number in own if not digest.columns[number].white_box] or own
        values = cells.value[counted].astype(np.float64)
        known = ~np.isnan(values)
        images = known.any(0) if len(counted) else np.zeros(0, bool)
        if images.any():
            each = np.where(known, values, 0).sum(0)[images] / known.sum(0)[images]
            found.append({"lens": lens, "value": 100 * float(each.mean()), "images": int(images.sum())})
    return found


def _clean_share(cells: Cells) -> float | None:
    """Return the share of tested images that are right when clean."""
    right = ((cells.first < WRONG) | (cells.first == SURVIVED)).any(0)
    wrong = (cells.first == WRONG).any(0) & ~right
    return float(right.sum() / (right.sum() + wrong.sum())) if right.any() or wrong.any() else None


def _easiest(cells: Cells) -> int:
    """Return the position of the image that breaks most easily on average."""
    known = (cells.first < WRONG) | (cells.first == SURVIVED)
    total = np.where(known, np.minimum(cells.first, STRONGEST), 0).sum(0, dtype=np.int64)
    return int(np.where(known.any(0), total / np.maximum(known.sum(0), 1), np.inf).argmin())
