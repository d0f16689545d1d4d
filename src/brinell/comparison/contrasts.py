"""Runs compared: how much each measure changed under each operator, and whether that is more than chance."""

from __future__ import annotations

import html
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from brinell.comparison.measures import AVERAGE, CLEAN_IMAGES, MEASURES, Column, Measure, image_values, measures_of
from brinell.comparison.paired import FEWEST, RESAMPLES, Array, Effects, holm, mean_effects, ratio_effects, share_effects
from brinell.comparison.pairing import Opened, Pair, pairs_of
from brinell.errors import RunError
from brinell.lenses.profile.findings import THRESHOLDS
from brinell.perturb.operator import OPERATORS
from brinell.runs.names import title
from brinell.runs.statistics import Estimate, first_below

ALPHA = 0.05


@dataclass(frozen=True)
class Contrast:
    """One measure under one operator (at one level, where it goes by them), for the pair of this number.

    `old` and `new` are means over the `images` that have a value in both; `alone` are those with one in the old run or
    in the new run only. `effect` is new minus old in the measure's unit: percentage points, or percent of what it was.
    `worse` and `better` count images. `p` is of the one test, `adjusted` of all operators' (and levels') together.
    """

    pair: int
    measure: str
    operator: str
    level: int | None
    images: int
    alone: tuple[int, int]
    old: float
    new: float
    effect: Estimate
    worse: int
    better: int
    p: float
    adjusted: float

    @property
    def gain(self) -> float:
        """The effect with the sign of good and bad: negative is worse."""
        return self.effect.value * MEASURES[self.measure].sign

    @property
    def unit(self) -> str:
        """What the effect is in."""
        return MEASURES[self.measure].unit

    def verdict(self, alpha: float = ALPHA) -> str:
        """better, worse, or no clear difference."""
        if math.isnan(self.p):
            return f"fewer than {FEWEST} images"
        if self.adjusted >= alpha or self.gain == 0:
            return "no clear difference"
        return "better" if self.gain > 0 else "worse"


@dataclass(frozen=True)
class FailurePoint:
    """The first level at which accuracy falls below a threshold, before and after; None: never."""

    pair: int
    operator: str
    threshold: float
    old: int | None
    new: int | None


@dataclass(frozen=True)
class Contrasts:
    """All that was compared. Shows itself in a notebook."""

    pairs: tuple[Pair, ...]
    lines: tuple[Contrast, ...]
    failures: tuple[FailurePoint, ...]
    left_out: tuple[str, ...]
    alpha: float = ALPHA
    seed: int = 0
    resamples: int = RESAMPLES

    def of(self, pair: int, measure: str) -> list[Contrast]:
        """A pair's lines of one measure, the worst change first, an average before them."""
        found = [line for line in self.lines if line.pair == pair and line.measure == measure]
        return sorted(found, key=lambda line: (line.operator != AVERAGE, line.gain if line.gain == line.gain else math.inf))

    def measures(self, pair: int) -> list[Measure]:
        """What a pair was compared by."""
        return [
            MEASURES[name] for name in MEASURES if any((line.pair, line.measure) == (pair, name) for line in self.lines)
        ]

    def verdict(self, pair: int) -> str:
        """A pair in a few sentences."""
        told = []
        for measure in self.measures(pair):
            if measure.by_level:
                continue
            lines = self.of(pair, measure.name)
            if len(lines) == 1:
                told.append(f"{_start(measure.what)}: {tell(lines[0])} ({lines[0].verdict(self.alpha)}).")
                continue
            average = f"{tell(lines[0])} on average; " if lines[0].operator == AVERAGE else ""
            each = [line for line in lines if line.operator != AVERAGE]
            parts = []
            for word in ("worse", "better"):
                names = [title(line.operator) for line in each if line.verdict(self.alpha) == word]
                if names:
                    parts.append(f"{word} under {', '.join(names[:3])}{f' and {len(names) - 3} more' if names[3:] else ''}")
            told.append(f"{_start(measure.what)}: {average}{', '.join(parts) or 'no clear difference under any'}.")
        return " ".join(told)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "pairs": [
                {
                    "old": {"run": pair.old.run.folder, "model": pair.old.model},
                    "new": {"run": pair.new.run.folder, "model": pair.new.model},
                    "images": len(pair.images),
                    "lenses": list(pair.lenses),
                    "notes": list(pair.notes),
                    "verdict": self.verdict(number),
                }
                for number, pair in enumerate(self.pairs)
            ],
            "measures": {
                name: {"what": MEASURES[name].what, "better": MEASURES[name].better, "unit": MEASURES[name].unit}
                for name in dict.fromkeys(line.measure for line in self.lines)
            },
            "contrasts": [
                {**_plain(asdict(line)), "effect": _plain(asdict(line.effect)), "verdict": line.verdict(self.alpha)}
                for line in self.lines
            ],
            "failure_points": [asdict(one) for one in self.failures],
            "left_out": list(self.left_out),
            "alpha": self.alpha,
            "bootstrap": {"seed": self.seed, "resamples": self.resamples},
        }

    def _repr_html_(self) -> str:
        """The pairs' verdicts and tables, for notebooks."""
        parts = []
        for number, pair in enumerate(self.pairs):
            parts.append(f"<h4>{html.escape(pair.told)}</h4><p>{html.escape(self.verdict(number))}</p>")
            rows = ""
            for measure in self.measures(number):
                if not measure.by_level:
                    for line in self.of(number, measure.name):
                        cells = (measure.what, operator_title(line.operator), tell(line), line.verdict(self.alpha))
                        rows += "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"
            parts.append(f"<table>{rows}</table>")
        return "".join(parts)


def contrasts(
    folders: Sequence[str | os.PathLike[str]],
    pairs: Iterable[str] = (),
    *,
    other_draws: bool = False,
    common_images: bool = False,
    alpha: float = ALPHA,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Contrasts:
    """Compare runs: all later ones with the first, or the models of one run with its first one."""
    runs = [Opened.of(folder) for folder in folders]
    matched = pairs_of(runs, pairs, other_draws=other_draws, common_images=common_images)
    lines: list[Contrast] = []
    left_out: list[str] = []
    for number, pair in enumerate(matched):
        for measure in measures_of(list(pair.lenses)):
            found, alone = _contrasts(number, pair, measure, seed, resamples)
            lines += found
            if alone and not measure.by_level:
                left_out.append(f"{pair.told}, {measure.what}: {', '.join(alone)} (measured in one alone)")
    if not any(MEASURES[line.measure].lens for line in lines):
        raise RunError("the runs have no operator in common; measure both with the same --operator")
    return Contrasts(tuple(matched), tuple(lines), tuple(_failures(lines)), tuple(left_out), alpha, seed, resamples)


def _contrasts(number: int, pair: Pair, measure: Measure, seed: int, resamples: int) -> tuple[list[Contrast], list[str]]:
    """One measure of one pair, and the operators that only one of them has."""
    images = list(pair.images)
    both = [
        image_values(side.run.store.connect(), measure, side.run.lens(measure.lens), side.model, images)
        for side in (pair.old, pair.new)
    ]
    columns = [column for column in both[0] if column in both[1]]
    alone = sorted({operator_title(operator) for operator, _ in both[0].keys() ^ both[1].keys()})
    if not columns:
        return [], alone
    old, new = (np.stack([values[column] for column in columns], 1) for values in both)
    natural = [place for place, (operator, _) in enumerate(columns) if not _is_attack(operator)]
    averaged = measure.unit == "points" and not measure.by_level and len(natural) > 1
    if averaged:
        columns = [*columns, (AVERAGE, None)]
        old, new = (np.column_stack([each, each[:, natural].mean(1)]) for each in (old, new))
    effects = _effects(measure, old, new, seed, resamples)
    lines = [_contrast(number, measure, column, old[:, k], new[:, k], effects, k) for k, column in enumerate(columns)]
    family = [line for line in lines if line.operator != AVERAGE]
    adjusted = holm(np.array([line.p for line in family]))
    others = [line for line in lines if line.operator == AVERAGE]
    return others + [replace(line, adjusted=float(p)) for line, p in zip(family, adjusted, strict=True)], alone


def _effects(measure: Measure, old: Array, new: Array, seed: int, resamples: int) -> Effects:
    """The right test for a measure: an average over operators is a mean, whatever it averages."""
    if measure.unit == "percent":
        return ratio_effects(old, new, seed=seed, resamples=resamples)
    if not measure.yes_or_no:
        return mean_effects(old, new, seed=seed, resamples=resamples)
    whole = ~((np.nan_to_num(old) % 1).any(0) | (np.nan_to_num(new) % 1).any(0))
    shares = share_effects(old, new)
    if whole.all():
        return shares
    means = mean_effects(old[:, ~whole], new[:, ~whole], seed=seed, resamples=resamples)
    for name in ("value", "low", "high", "p"):
        getattr(shares, name)[~whole] = getattr(means, name)
    return shares


def _contrast(number: int, measure: Measure, column: Column, old: Array, new: Array, effects: Effects, k: int) -> Contrast:
    before, after = ~np.isnan(old), ~np.isnan(new)
    known = before & after
    change = (new - old)[known] * measure.sign
    return Contrast(
        pair=number,
        measure=measure.name,
        operator=column[0],
        level=column[1],
        images=int(known.sum()),
        alone=(int((before & ~after).sum()), int((after & ~before).sum())),
        old=float(old[known].mean()) if known.any() else math.nan,
        new=float(new[known].mean()) if known.any() else math.nan,
        effect=Estimate(*(100 * float(one[k]) for one in (effects.value, effects.low, effects.high))),
        worse=int((change < 0).sum()),
        better=int((change > 0).sum()),
        p=float(effects.p[k]),
        adjusted=float(effects.p[k]),
    )


def _is_attack(operator: str) -> bool:
    """Attacks are there for comparison, and are left out of averages."""
    return operator in OPERATORS and OPERATORS[operator].white_box


def _failures(lines: list[Contrast]) -> list[FailurePoint]:
    """Failure points of both sides, over the same images."""
    curves: dict[tuple[int, str], list[Contrast]] = {}
    for line in lines:
        if line.measure == "accuracy":
            curves.setdefault((line.pair, line.operator), []).append(line)
    return [
        FailurePoint(
            pair,
            operator,
            threshold,
            first_below([line.old for line in points], threshold),
            first_below([line.new for line in points], threshold),
        )
        for (pair, operator), points in curves.items()
        for threshold in THRESHOLDS
    ]


def operator_title(operator: str) -> str:
    """An operator's name for people, and the names that stand in its place."""
    return {CLEAN_IMAGES: "clean images", AVERAGE: "average"}.get(operator) or title(operator)


def tell(line: Contrast, *, unit: bool = True) -> str:
    """An effect with its interval, and its unit unless that is told elsewhere."""
    word = "" if not unit else " points" if line.unit == "points" else " %"
    one = line.effect
    if math.isnan(one.value):
        return "–"
    return f"{one.value:+.1f}{word}" + (f" [{one.low:+.1f}, {one.high:+.1f}]" if one.low == one.low else "")


def _start(text: str) -> str:
    return text[0].upper() + text[1:]


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    return {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in record.items()}
