"""What the fragility lens found, from rows and maps: how many windows a small change flips, size by size."""

from __future__ import annotations

import html
import math
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

import duckdb

from brinell.lenses.fragility.fragile import KINDS
from brinell.lenses.fragility.maps import Maps, unpacked
from brinell.runs.names import title
from brinell.runs.statistics import Estimate, mean
from brinell.runs.store import Store

HEADLINES = ("loose shift", "loose shrink")
NO_NUMBER = Estimate(math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class Share:
    """One model at one size of windows: the share of windows that are fragile, the mean over `images`.

    `lost` are those that are right and become wrong, `gained` the other way (of fragility by correctness alone); `inside`
    and `outside` are shares among windows with their middle in the object's box, and among the others, where boxes are
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
class FallingPair:
    """Two windows a small change apart: the first is right, the second is not. Corners are left and top."""

    model: str
    operator: str
    change: str
    image: str
    label: int
    side: int
    corner: tuple[int, int]
    to_corner: tuple[int, int]
    fall: float

    @property
    def to_side(self) -> int:
        """The side of the second window."""
        return self.side - 2 if self.change == "shrink" else self.side


@dataclass(frozen=True)
class MinimalImages:
    """One image's minimal images for one model, found by the tree search: (side, left, top, confidence) each.

    None is there where not even the largest windows are recognised, or all are down to the last pixel. `complete`: all
    branches were followed.
    """

    model: str
    image: str
    windows: tuple[tuple[int, int, int, float], ...]
    queries: int
    complete: bool


@dataclass(frozen=True)
class Fragility:
    """All that the fragility lens found. `shares` goes by (model, operator, kind, judged_by)."""

    shares: dict[tuple[str, str, str, str], Share]
    by_class: list[dict[str, Any]]
    pairs: list[FallingPair]
    minimal: list[MinimalImages]
    smallest: dict[tuple[str, str], int]  # by model and image: the smallest side at which a window is a minimal image
    too_small: dict[str, int]  # images by operator
    stride: int = 1
    neighbours: int = 8

    @property
    def models(self) -> list[str]:
        """The models, the least fragile first."""
        rates: dict[str, list[float]] = {one.model: [] for one in self.minimal}
        for (model, _, kind, judged_by), one in self.shares.items():
            rates.setdefault(model, [])
            if kind in HEADLINES and judged_by == "correct" and one.images:
                rates[model].append(one.share.value)
        return sorted(rates, key=lambda model: sum(rates[model]) / len(rates[model]) if rates[model] else math.inf)

    @property
    def operators(self) -> list[str]:
        """What was looked at: windows, then places on black, each by size."""
        return sorted({operator for _, operator, _, _ in self.shares}, key=by_size)

    def share(self, model: str, operator: str, kind: str, judged_by: str = "correct") -> Share | None:
        """One figure, where it was measured."""
        return self.shares.get((model, operator, kind, judged_by))

    def verdict(self, model: str) -> str:
        """The finding about a model in a sentence."""
        told = []
        for operator in self.operators:
            shift, shrink = (self.share(model, operator, kind) for kind in HEADLINES)
            if operator.startswith("windows:") and shift is not None and shrink is not None and shrink.images:
                moved = f"{shift.share.value:.1%} of the windows with one pixel of shift and " if shift.images else ""
                told.append((operator, f"{moved}{shrink.share.value:.1%} with two of shrink"))
        parts = [f"{model} changes between right and wrong in {words} at {title(operator)}" for operator, words in told[:1]]
        parts += [f"{words} at {title(operator)}" for operator, words in told[1:][-1:]]
        for operator in self.operators:
            one = self.share(model, operator, "loose shift", "label")
            if operator.startswith("location:") and one is not None and one.images:
                parts.append(f"its label changes at {one.share.value:.1%} of the places of the image {title(operator)}")
        mine = [one for one in self.minimal if one.model == model]
        if mine:
            counts = [len(one.windows) for one in mine]
            more = "" if all(one.complete for one in mine) else " or more: not all branches were followed"
            parts.append(f"{sum(counts) / len(counts):.1f} minimal images in a photograph{more}")
        sentence = "; ".join(parts) or f"Nothing is known of {model}: no window could be judged"
        return sentence[0].upper() + sentence[1:] + "." if not told else sentence + "."

    def table(self) -> list[dict[str, Any]]:
        """One flat record a model, size, kind and way of judging."""
        names = ("share", "lost", "gained", "inside", "outside", "recognised")
        return [
            {
                **{key: value for key, value in asdict(one).items() if key not in names},
                **{
                    f"{name}_{key}" if key != "value" else name: value
                    for name in names
                    for key, value in asdict(getattr(one, name)).items()
                },
            }
            for one in self.shares.values()
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "stride": self.stride,
            "neighbours": self.neighbours,
            "verdicts": {model: self.verdict(model) for model in self.models},
            "shares": [_plain(record) for record in self.table()],
            "classes": [_plain(record) for record in self.by_class],
            "pairs": [asdict(pair) for pair in self.pairs],
            "minimal": [asdict(one) for one in self.minimal],
            "smallest": [{"model": model, "image": image, "side": side} for (model, image), side in self.smallest.items()],
            "too_small": self.too_small,
        }

    def _repr_html_(self) -> str:
        """The verdicts and the shares, for notebooks."""
        verdicts = "".join(f"<p>{html.escape(self.verdict(model))}</p>" for model in self.models)
        heads = "".join(f"<th>{kind}</th>" for kind in KINDS)
        rows = ""
        for model in self.models:
            for operator in self.operators:
                cells = "".join(_cell(self.share(model, operator, kind)) for kind in KINDS)
                rows += f"<tr><th>{html.escape(model)}</th><th>{html.escape(title(operator))}</th>{cells}</tr>"
        caption = "fragile windows by correctness, mean over images with 95 % intervals"
        return f"{verdicts}<table><caption>{caption}</caption><tr><th></th><th></th>{heads}</tr>{rows}</table>"


def fragility(connection: duckdb.DuckDBPyConnection, stride: int = 1, neighbours: int = 8) -> Fragility:
    """Read the lens's rows."""
    return Fragility(
        shares=_shares(connection),
        by_class=_by_class(connection),
        pairs=_pairs(connection),
        minimal=_minimal(connection),
        smallest=_smallest(connection),
        too_small=dict(
            connection.execute(
                "select operator, count(distinct image) from rows where status = 'too small' group by all order by all"
            ).fetchall()
        ),
        stride=stride,
        neighbours=neighbours,
    )


def by_size(operator: str) -> tuple[bool, bool, float]:
    """A key that sorts what is looked at: windows before places, shares before pixels, small before large."""
    name, _, size = operator.partition(":")
    return name != "windows", size.endswith("px"), float(size.removesuffix("px"))


def read_maps(store: Store, model: str, operator: str, image: str) -> Maps:
    """What a model answered to the windows of one size of an image."""
    return unpacked(store.read(*map_file(model, operator, image)))


def map_file(model: str, operator: str, image: str) -> tuple[str, ...]:
    """Where these maps lie in the run's folder."""
    return "fragility", quote(model, safe=""), quote(operator, safe=""), f"{image}.npz"


_PARTS = {
    "share": ("fragile / windows", "windows > 0"),
    "lost": ("lost / windows", "windows > 0 and lost is not null"),
    "gained": ("gained / windows", "windows > 0 and gained is not null"),
    "inside": ("inside_fragile / inside", "inside > 0"),
    "outside": ("(fragile - inside_fragile) / (windows - inside)", "windows > inside"),
    "recognised": ("recognised / windows", "windows > 0"),
}


def _shares(connection: duckdb.DuckDBPyConnection) -> dict[tuple[str, str, str, str], Share]:
    columns = ", ".join(
        f"avg({what}) filter ({where}), stddev_samp({what}) filter ({where}), count(*) filter ({where})"
        for what, where in _PARTS.values()
    )
    rows = connection.execute(
        f"""select model, operator, kind, judged_by, count(*) filter (windows > 0), sum(windows)::bigint, {columns}
            from rows where lens = 'fragility' and status = 'measured' group by 1, 2, 3, 4 order by 1, 2, 3, 4"""
    ).fetchall()
    found = {}
    for model, operator, kind, judged_by, images, windows, *moments in rows:
        estimates = {
            name: NO_NUMBER if value is None else mean(value, deviation, count, most=1)
            for name, value, deviation, count in zip(_PARTS, moments[::3], moments[1::3], moments[2::3], strict=True)
        }
        found[model, operator, kind, judged_by] = Share(model, operator, kind, judged_by, images, windows, **estimates)
    return found


def _by_class(connection: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    names = ("model", "operator", "kind", "label", "images", "share")
    rows = connection.execute(
        """select model, operator, kind, label, count(*), avg(fragile / windows) from rows
           where lens = 'fragility' and status = 'measured' and judged_by = 'correct' and windows > 0
           group by all order by all"""
    ).fetchall()
    return [dict(zip(names, row, strict=True)) for row in rows]


def _pairs(connection: duckdb.DuckDBPyConnection) -> list[FallingPair]:
    """Of every image and size, those that fall the most first."""
    rows = connection.execute(
        """select distinct model, operator, kind, image, label, side, x, y, to_x, to_y, fall from rows
           where lens = 'fragility' and operator like 'windows:%' and fall is not null order by fall desc, 1, 2, 3, 4"""
    ).fetchall()
    return [
        FallingPair(model, operator, kind.split()[1], image, label, side, (x, y), (to_x, to_y), fall)
        for model, operator, kind, image, label, side, x, y, to_x, to_y, fall in rows
    ]


def _minimal(connection: duckdb.DuckDBPyConnection) -> list[MinimalImages]:
    rows = connection.execute(
        """select model, image, bool_and(status != 'minimal, not all searched'), any_value(queries),
                  list((side, x, y, probability) order by side, x, y) filter (side is not null)
           from (select distinct model, image, status, queries, side, x, y, probability from rows
                 where lens = 'fragility' and operator like 'minimal:%') group by 1, 2 order by 1, 2"""
    ).fetchall()
    return [
        MinimalImages(model, image, tuple(tuple(window) for window in windows or ()), queries, complete)
        for model, image, complete, queries, windows in rows
    ]


def _smallest(connection: duckdb.DuckDBPyConnection) -> dict[tuple[str, str], int]:
    rows = connection.execute(
        """select model, image, min(side) from rows
           where lens = 'fragility' and kind = 'strict shrink' and judged_by = 'correct' and lost > 0
           group by all order by all"""
    ).fetchall()
    return {(model, image): side for model, image, side in rows}


def _cell(one: Share | None) -> str:
    if one is None or not one.images:
        return "<td>–</td>"
    share = one.share
    return f"<td>{share.value:.2%} <small>[{share.low:.1%}, {share.high:.1%}]</small></td>"


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    """A record in which what is not a number is None."""
    return {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in record.items()}
