"""What the fragility lens found: how many windows a small change flips, size by size. Nothing here imports torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from statistics import stdev
from typing import Any

from brinell.lenses.fragility.names import LOCATION, MINIMAL, SHRINK, WINDOWS
from brinell.lenses.fragility.queries import (
    FragileShare,
    Key,
    MinimalImages,
    WindowPair,
    query_classes,
    query_minimal,
    query_pairs,
    query_shares,
    query_smallest,
    query_too_small,
)
from brinell.lenses.reader import NO_ANSWER, Failures, Figures, Measure, PrintedFindings, Reader
from brinell.registry import VariantId
from brinell.runs.hardness import Scale
from brinell.runs.plain import to_plain
from brinell.runs.run import Run
from brinell.runs.schema import Schema
from brinell.runs.statistics import mean
from brinell.runs.words import format_mean, format_share, note_few

HEADLINES = ("loose shift", "loose shrink")

COLUMNS: Schema = {  # one row per image, size (the operator), kind and way of judging
    "kind": "name",  # loose shift, strict shift, loose shrink, strict shrink
    "judged_by": "name",  # what has to change: correct or label
    "side": "int32",  # of the windows, in pixels
    "windows": "int32",  # number of judged windows
    "recognised": "int32",  # of them, right
    "fragile": "int32",
    "lost": "int32",  # fragile, right and become wrong
    "gained": "int32",  # fragile, wrong and become right
    "inside": "int32",  # judged windows with their centre in the object's box
    "inside_fragile": "int32",
    # corners of the two windows with the largest drop in confidence; x and y alone: a minimal image
    "x": "int32",
    "y": "int32",
    "to_x": "int32",
    "to_y": "int32",
    "drop": "float32",
}


@dataclass(frozen=True, repr=False)
class FragilityFindings(PrintedFindings):
    """All findings of the fragility lens. `shares` is keyed by (model, operator, kind, judged_by)."""

    shares: dict[Key, FragileShare]
    by_class: list[dict[str, Any]]
    pairs: list[WindowPair]
    minimal: list[MinimalImages]
    smallest: dict[tuple[str, str], int]  # smallest side of a minimal image on the grid, by model and image
    too_small: dict[str, int]  # images by operator
    stride: float = 1
    neighbours: int = 8
    titles: Mapping[str, str] = field(default_factory=dict)  # by operator
    budget: float = 1.0  # share of the queries; below 1, a random lattice of each image's windows was judged

    @property
    def sampled(self) -> str:
        """Which windows were judged, if not all."""
        if self.budget < 1:
            return f"A random lattice of each image's windows, which takes {100 * self.budget:.3g}% of the queries,"
        if self.stride == 1:
            return ""
        return (
            f"One window in {self.stride} × {self.stride}"
            if self.stride > 1
            else (f"One window every {self.stride:.0%} of the shorter side")
        )

    @property
    def models(self) -> list[str]:
        """Models, the least fragile first."""
        rates: dict[str, list[float]] = {one.model: [] for one in self.minimal}
        for (model, _, kind, judged_by), share in self.shares.items():
            rates.setdefault(model, [])
            if kind in HEADLINES and judged_by == "correct" and share.images:
                rates[model].append(share.share.value)
        return sorted(
            rates, key=lambda model: round(sum(rates[model]) / len(rates[model]), 9) if rates[model] else math.inf
        )

    @property
    def operators(self) -> list[str]:
        """Operators with shares: windows, then locations on black, each by size."""
        return sorted({operator for _, operator, _, _ in self.shares}, key=_by_size)

    @property
    def windows(self) -> list[str]:
        """The operators that cut windows, by size."""
        return [operator for operator in self.operators if operator.startswith(f"{WINDOWS}:")]

    @property
    def locations(self) -> list[str]:
        """The operators that put the whole image on black, by size."""
        return [operator for operator in self.operators if operator.startswith(f"{LOCATION}:")]

    def title(self, operator: str) -> str:
        """Return an operator's name for people."""
        return self.titles.get(operator, operator)

    def share(self, model: str, operator: str, kind: str, judged_by: str = "correct") -> FragileShare | None:
        """Return one share; None if it was not measured."""
        return self.shares.get((model, operator, kind, judged_by))

    def verdict(self, model: str) -> str:
        """Return the finding about a model in a few sentences."""
        sentences = [*self._window_verdict(model)]
        sentences += self._location_verdict(model, "its" if sentences else f"{model}'s")
        sentences += self._minimal_verdict(model, "It" if sentences else model)
        if not sentences:
            return f"No window of any image could be tested with {model}."
        images = [share.images for (own, *_), share in self.shares.items() if own == model]
        return " ".join(sentences) + note_few(max([*images, sum(one.model == model for one in self.minimal)]))

    def _window_verdict(self, model: str) -> Iterator[str]:
        """Yield how many windows flip at the smallest and the largest size."""
        measured = []
        for operator in self.windows:
            shift, shrink = (self.share(model, operator, kind) for kind in HEADLINES)
            if shift is not None and shrink is not None and shrink.images:
                measured.append((self.title(operator), shift, shrink))
        for title, shift, shrink in measured[:1]:
            by_shift = f"{format_share(shift.share)} of windows after a one-pixel shift and in " if shift.images else ""
            of_windows = "" if by_shift else " of windows"
            yield (
                f"{model} flips between right and wrong in {by_shift}{format_share(shrink.share)}{of_windows} after a "
                f"two-pixel shrink ({title})."
            )
        for title, shift, shrink in measured[1:][-1:]:
            by_shift = f"{format_share(shift.share)} (shift) and " if shift.images else ""
            yield f"For {title} it is {by_shift}{format_share(shrink.share)} (shrink)."

    def _location_verdict(self, model: str, whose: str) -> Iterator[str]:
        for operator in self.locations:
            share = self.share(model, operator, "loose shift", "label")
            if share is not None and share.images:
                changes = f"a one-pixel shift changes {whose} label at {format_share(share.share)} of positions"
                yield f"With the whole image at {self.title(operator)}, {changes}."

    def _minimal_verdict(self, model: str, subject: str) -> Iterator[str]:
        mine = [one for one in self.minimal if one.model == model]
        if mine:
            counts = [len(one.windows) for one in mine]
            deviation = stdev(counts) if len(counts) > 1 else None
            average = format_mean(mean(sum(counts) / len(counts), deviation, len(counts)), ".1f")
            bound = "" if all(one.complete for one in mine) else " or more (not all branches were searched)"
            yield f"{subject} has {average} minimal images per photograph{bound}."

    def table(self) -> list[dict[str, Any]]:
        """Return one flat record per model, size, kind and way of judging."""
        names = ("share", "lost", "gained", "inside", "outside", "recognised")
        return [
            {
                **{key: value for key, value in asdict(share).items() if key not in names},
                **{
                    f"{name}_{key}" if key != "value" else name: value
                    for name in names
                    for key, value in asdict(getattr(share, name)).items()
                },
            }
            for share in self.shares.values()
        ]

    def figures(self) -> Iterator[Figures]:
        """Yield the shares by operator, and the means of the minimal search."""
        for share in self.shares.values():
            yield share.model, share.operator, 0, {share.kind: {share.judged_by: share}}
        for model in dict.fromkeys(one.model for one in self.minimal):
            mine = [one for one in self.minimal if one.model == model]
            means = {
                "images": len(mine),
                "minimal_images": sum(len(one.windows) for one in mine) / len(mine),
                "queries": sum(one.queries for one in mine) / len(mine),
                "complete": sum(one.complete for one in mine) / len(mine),
            }
            yield model, MINIMAL, 0, means

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        content: dict[str, Any] = to_plain(
            {
                "stride": self.stride,
                "budget": self.budget,
                "neighbours": self.neighbours,
                "verdicts": {model: self.verdict(model) for model in self.models},
                "shares": self.table(),
                "classes": self.by_class,
                "pairs": self.pairs,
                "minimal": self.minimal,
                "smallest": [
                    {"model": model, "image": image, "side": side} for (model, image), side in self.smallest.items()
                ],
                "too_small": self.too_small,
            }
        )
        return content


def _by_size(operator: str) -> tuple[bool, bool, float]:
    """Return a sort key: windows before locations, shares before pixels, small before large."""
    name, size = VariantId.parse(operator)
    return name != WINDOWS, size.endswith("px"), float(size.removesuffix("px"))


def find(run: Run, options: Mapping[str, Any], summary: Mapping[str, Any]) -> FragilityFindings:
    """Return the findings of a run."""
    shares = query_shares(run)
    too_small = query_too_small(run)
    operators = {operator for _, operator, _, _ in shares} | set(too_small)
    return FragilityFindings(
        shares=shares,
        by_class=query_classes(run),
        pairs=query_pairs(run),
        minimal=query_minimal(run),
        smallest={} if run.sampled else query_smallest(run),  # a sample may lack an image's smallest
        too_small=too_small,
        stride=options["stride"],
        neighbours=options["neighbours"],
        titles={operator: run.title(operator) for operator in operators},
        budget=run.share,
    )


_SHRUNK_BY = f"case when kind like '%shrink' then {SHRINK} else 0 end"  # pixels; a shift moves by one
_PAIRS = "drop is not null and operator like 'windows:%'"
_WINDOWS = f"[to_x, to_y, side - {_SHRUNK_BY}, x, y, side]::double[]"  # the wrong window, then the right one


def _query_failures(options: Mapping[str, Any]) -> str:
    return f"""
        select model, operator, image, label, {_WINDOWS}, 0, split_part(kind, ' ', 2),
               100 * greatest(1, {_SHRUNK_BY}) / side, greatest(1, {_SHRUNK_BY}), {NO_ANSWER}
        from rows where lens = 'fragility' and {_PAIRS}
    """


FAILURES = Failures(_query_failures, parameters="windows", answers=False, pairs=True)

MEASURES = tuple(
    Measure(
        name=f"fragile_{move}",
        lens="fragility",
        what=f"share of windows that a small {move} flips between right and wrong",
        better="lower",
        unit="points",
        sql=f"""select model, operator, image, fragile / windows as value from rows where lens = 'fragility'
                and status = 'measured' and kind = 'loose {move}' and judged_by = 'correct' and windows > 0""",
        headline=move == "shift",
        phrases=((WINDOWS, f"a {move} of {{title}}"),),
    )
    for move in ("shift", "shrink")
)

HARDNESS = Scale(
    what="one-pixel shifts",
    among="sizes of windows",
    meaning="Of the windows of an image that the model gets right: the share that stays right after every one-pixel shift, "
    "and after every two-pixel shrink; the mean of the two, averaged over all sizes.",
    sql=f"""
        select model, operator, image, avg(1 - lost / recognised) as value from rows
        where lens = 'fragility' and operator like '{WINDOWS}:%' and status = 'measured' and judged_by = 'correct'
              and kind in {HEADLINES} and recognised > 0 group by all
    """,
)


def _name_cells(operator: str) -> str | None:
    """Return what a budget chooses of each image; a search for minimal images can't be divided."""
    return {WINDOWS: "windows", LOCATION: "positions"}.get(VariantId.parse(operator).name)


READER = Reader(
    columns=COLUMNS,
    find=find,
    changed=_PAIRS,
    parameters=_WINDOWS,
    cells=_name_cells,
    counted=True,
    measures=MEASURES,
    hardness=HARDNESS,
    failures=FAILURES,
    maps=f"{__package__}.answer_maps:read_answer_maps",
)
