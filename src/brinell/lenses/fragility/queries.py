"""The lens's rows as records, by SQL."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from brinell.lenses.fragility.names import SHRINK
from brinell.runs.run import Run
from brinell.runs.statistics import Estimate, mean

UNKNOWN = Estimate(math.nan, math.nan, math.nan)
Key = tuple[str, str, str, str]  # model, operator, kind, judged_by


@dataclass(frozen=True)
class FragileShare:
    """The share of fragile windows for one model and size: the mean over `images`.

    `lost` windows are right and become wrong, `gained` ones the reverse (judged by correctness only). `inside` and
    `outside` are the shares among windows with their centre in the object's box and among the others, where boxes are
    known. `recognised` is the share of windows that are right.
    """

    model: str
    operator: str
    kind: str
    judged_by: str
    images: int
    windows: int
    share: Estimate
    lost: Estimate
    gained: Estimate
    inside: Estimate
    outside: Estimate
    recognised: Estimate


@dataclass(frozen=True)
class WindowPair:
    """Two windows one move apart, the first right and the second wrong. Corners are left and top."""

    model: str
    operator: str
    move: str  # shift or shrink
    image: str
    label: int
    side: int
    corner: tuple[int, int]
    to_corner: tuple[int, int]
    drop: float  # in confidence

    @property
    def to_side(self) -> int:
        """Side of the second window."""
        return self.side - SHRINK if self.move == "shrink" else self.side


@dataclass(frozen=True)
class MinimalImages:
    """The minimal images of one image for one model, found by the tree search: (side, left, top, confidence) each.

    There are none if not even the largest windows are recognised, or if all are recognised down to the last pixel.
    `complete`: all branches were searched.
    """

    model: str
    image: str
    windows: tuple[tuple[int, int, int, float], ...]
    queries: int
    complete: bool


_PARTS = {
    "share": ("fragile / windows", "windows > 0"),
    "lost": ("lost / windows", "windows > 0 and lost is not null"),
    "gained": ("gained / windows", "windows > 0 and gained is not null"),
    "inside": ("inside_fragile / inside", "inside > 0"),
    "outside": ("(fragile - inside_fragile) / (windows - inside)", "windows > inside"),
    "recognised": ("recognised / windows", "windows > 0"),
}


def query_shares(run: Run) -> dict[Key, FragileShare]:
    """Return the shares of fragile windows."""
    columns = ", ".join(
        f"avg({value}) filter ({where}), stddev_samp({value}) filter ({where}), count(*) filter ({where})"
        for value, where in _PARTS.values()
    )
    rows = run.query(
        f"""select model, operator, kind, judged_by, count(*) filter (windows > 0), sum(windows)::bigint, {columns}
            from rows where lens = 'fragility' and status = 'measured' group by 1, 2, 3, 4 order by 1, 2, 3, 4"""
    )
    shares = {}
    for model, operator, kind, judged_by, images, windows, *moments in rows:
        estimates = {
            name: UNKNOWN if value is None else mean(value, deviation, count, most=1)
            for name, value, deviation, count in zip(_PARTS, moments[::3], moments[1::3], moments[2::3], strict=True)
        }
        share = FragileShare(model, operator, kind, judged_by, images, windows, **estimates)
        shares[model, operator, kind, judged_by] = share
    return shares


def query_classes(run: Run) -> list[dict[str, Any]]:
    """Return the share of fragile windows by class."""
    names = ("model", "operator", "kind", "label", "images", "share")
    rows = run.query(
        """select model, operator, kind, label, count(*), avg(fragile / windows) from rows
           where lens = 'fragility' and status = 'measured' and judged_by = 'correct' and windows > 0
           group by all order by all"""
    )
    return [dict(zip(names, row, strict=True)) for row in rows]


def query_pairs(run: Run) -> list[WindowPair]:
    """Return the pair with the largest drop of every image, size and move, the largest drops first."""
    rows = run.query(
        """select distinct model, operator, kind, image, label, side, x, y, to_x, to_y, drop from rows
           where lens = 'fragility' and operator like 'windows:%' and drop is not null order by drop desc, 1, 2, 3, 4"""
    )
    return [
        WindowPair(model, operator, kind.split()[1], image, label, side, (x, y), (to_x, to_y), drop)
        for model, operator, kind, image, label, side, x, y, to_x, to_y, drop in rows
    ]


def query_minimal(run: Run) -> list[MinimalImages]:
    """Return the minimal images that the tree search found, by model and image."""
    rows = run.query(
        """select model, image, bool_and(status != 'minimal, not all searched'), any_value(queries),
                  list((side, x, y, probability) order by side, x, y) filter (side is not null)
           from (select distinct model, image, status, queries, side, x, y, probability from rows
                 where lens = 'fragility' and operator like 'minimal:%') group by 1, 2 order by 1, 2"""
    )
    return [
        MinimalImages(model, image, tuple(tuple(window) for window in windows or ()), queries, complete)
        for model, image, complete, queries, windows in rows
    ]


def query_smallest(run: Run) -> dict[tuple[str, str], int]:
    """Return the smallest side at which a window of the grid is a minimal image, by model and image."""
    rows = run.query(
        """select model, image, min(side) from rows
           where lens = 'fragility' and kind = 'strict shrink' and judged_by = 'correct' and lost > 0
           group by all order by all"""
    )
    return {(model, image): side for model, image, side in rows}


def query_too_small(run: Run) -> dict[str, int]:
    """Return the number of images that are too small for a size, by operator."""
    rows = run.query(
        """select operator, count(distinct image) from rows where lens = 'fragility' and status = 'too small'
           group by all order by all"""
    )
    return dict(rows)
