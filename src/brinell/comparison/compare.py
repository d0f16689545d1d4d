"""Runs compared: how much each measure changed under each operator, and whether that is more than chance."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from brinell.comparison.measures import (
    Column,
    averaged_operators,
    describe_measure,
    image_values,
    measures_of,
)
from brinell.comparison.paired import MIN_IMAGES, Effects, holm, paired_effects
from brinell.comparison.pairing import Pair, pair_models
from brinell.comparison.resampling import RESAMPLES, Array
from brinell.comparison.slices import slice_tables
from brinell.errors import ConfigError, RunError
from brinell.lenses.lens import LENSES
from brinell.lenses.reader import AVERAGE, ComparisonTable, Measure
from brinell.registry import nearest
from brinell.report.grid import Grid, to_html
from brinell.runs.plain import to_plain
from brinell.runs.run import Run
from brinell.runs.statistics import Estimate

ALPHA = 0.05


@dataclass(frozen=True)
class Delta:
    """The change of one measure under one operator (at one level, if the measure goes by levels), for one pair.

    `old` and `new` are means over the `images` that have a value in both; `unpaired` counts those with a value in the old
    run only and in the new run only. `effect` is new minus old in the measure's unit: percentage points, or percent of the
    old value. `worse` and `better` count images. `p` is the p-value of this test, `adjusted` the one over all operators
    (and levels; level 0, the clean image, counts once).
    """

    pair: int
    measure: Measure
    operator: str
    title: str
    level: int | None
    images: int
    unpaired: tuple[int, int]
    old: float
    new: float
    effect: Estimate
    worse: int
    better: int
    p: float
    adjusted: float

    @property
    def gain(self) -> float:
        """The effect with the sign of an improvement: negative is worse."""
        return self.effect.value * self.measure.sign

    def verdict(self, alpha: float = ALPHA) -> str:
        """Return better, worse or no clear difference."""
        if math.isnan(self.p):
            return f"fewer than {MIN_IMAGES} images"
        if self.adjusted >= alpha or self.gain == 0:
            return "no clear difference"
        return "better" if self.gain > 0 else "worse"

    def to_json(self, alpha: float = ALPHA) -> dict[str, Any]:
        """Return everything as plain data."""
        content: dict[str, Any] = to_plain(self) | {"measure": self.measure.name, "verdict": self.verdict(alpha)}
        return content


@dataclass(frozen=True)
class Comparison:
    """Everything that was compared, with further tables of the lenses by pair. Shows itself in a notebook."""

    pairs: tuple[Pair, ...]
    deltas: tuple[Delta, ...]
    tables: Mapping[int, tuple[ComparisonTable, ...]] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    alpha: float = ALPHA
    seed: int = 0
    resamples: int = RESAMPLES

    def select(self, pair: int, measure: str) -> list[Delta]:
        """Return a pair's deltas of one measure: the average first, then from worst to best."""
        found = [delta for delta in self.deltas if delta.pair == pair and delta.measure.name == measure]
        return sorted(found, key=lambda one: (one.operator != AVERAGE, one.gain if one.gain == one.gain else math.inf))

    def measures(self, pair: int) -> list[Measure]:
        """Return what a pair was compared by."""
        return list({delta.measure.name: delta.measure for delta in self.deltas if delta.pair == pair}.values())

    def verdict(self, pair: int) -> str:
        """Return a pair's comparison in a few sentences."""
        return " ".join(self._sentence(pair, measure) for measure in self.measures(pair) if not measure.by_level)

    def _sentence(self, pair: int, measure: Measure) -> str:
        what = describe_measure(measure)
        start = what[0].upper() + what[1:]
        deltas = self.select(pair, measure.name)
        if len(deltas) == 1:
            return f"{start}: {format_change(deltas[0])} ({deltas[0].verdict(self.alpha)})."
        average = f"{format_change(deltas[0])} on average; " if deltas[0].operator == AVERAGE else ""
        if all(math.isnan(one.p) for one in deltas):
            return f"{start}: {average}fewer than {MIN_IMAGES} images, too few to test."
        parts = []
        for word in ("worse", "better"):
            names = [one.title for one in deltas if one.operator != AVERAGE and one.verdict(self.alpha) == word]
            if names:
                parts.append(f"{word} under {', '.join(names[:3])}{f' and {len(names) - 3} more' if names[3:] else ''}")
        return f"{start}: {average}{', '.join(parts) or 'no clear difference under any operator'}."

    def figure(self, measure: str | None = None, pair: int = 0) -> Any:
        """Return the change of a measure under each operator as an Altair chart, which notebooks show as SVG.

        The default is the first measure that several operators have.
        """
        from brinell.comparison.charts import operator_changes  # altair is slow to import
        from brinell.report.figures import draw_offline

        drawn = {one.name: one for one in self.measures(pair) if not one.by_level and len(self.select(pair, one.name)) > 1}
        name = measure or next(iter(drawn), "")
        if name not in drawn:
            raise ConfigError(f"there is no figure of {name!r}; {nearest(name, list(drawn))}")
        return draw_offline(operator_changes(self, pair, drawn[name]))

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        measures = {delta.measure.name: delta.measure for delta in self.deltas}
        records: dict[str, list[dict[str, Any]]] = {}
        for pair, tables in self.tables.items():
            for table in tables:
                records.setdefault(table.name, []).extend({"pair": pair, **record} for record in table.records)
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
                name: {"what": describe_measure(measure), "better": measure.better, "unit": measure.unit}
                for name, measure in measures.items()
            },
            "deltas": [delta.to_json(self.alpha) for delta in self.deltas],
            "tables": records,
            "left_out": list(self.left_out),
            "alpha": self.alpha,
            "bootstrap": {"seed": self.seed, "resamples": self.resamples},
        }

    def _repr_html_(self) -> str:
        """Return the pairs' verdicts and tables, for notebooks."""
        parts = []
        for number, pair in enumerate(self.pairs):
            measures = [measure for measure in self.measures(number) if not measure.by_level]
            rows = tuple(
                (describe_measure(measure), one.title, format_change(one), one.verdict(self.alpha))
                for measure in measures
                for one in self.select(number, measure.name)
            )
            grid = Grid(("measure", "operator", "change [95 %]", "verdict"), rows, left=frozenset({0, 1, 3}))
            parts.append(f"<h4>{html.escape(pair.title)}</h4>{to_html([self.verdict(number), grid])}")
        return "".join(parts)


def format_change(delta: Delta, *, unit: bool = True) -> str:
    """Return an effect with its interval, and its unit by default."""
    effect = delta.effect
    if math.isnan(effect.value):
        return "–"
    word = "" if not unit else " points" if delta.measure.unit == "points" else " %"
    interval = f" [{effect.low:+.1f}, {effect.high:+.1f}]" if effect.low == effect.low else ""
    return f"{effect.value:+.1f}{word}{interval}"


def compare_runs(
    runs: Sequence[Run],
    pairs: Iterable[str] = (),
    *,
    other_draws: bool = False,
    common_images: bool = False,
    alpha: float = ALPHA,
    seed: int = 0,
) -> Comparison:
    """Compare all later runs with the first, or the models of one run with its first one."""
    matched = pair_models(runs, pairs, other_draws=other_draws, common_images=common_images)
    deltas: list[Delta] = []
    left_out: list[str] = []
    for number, pair in enumerate(matched):
        for measure in measures_of(pair.lenses):
            found, alone = compare_measure(number, pair, measure, seed)
            deltas += found
            if alone and not measure.by_level:
                left_out.append(f"{pair.title}, {measure.what}: {', '.join(alone)} (measured in one run only)")
    if not any(delta.measure.lens for delta in deltas):
        raise RunError("the runs have no operator in common; run both with the same --operator")
    tables = {
        number: (*_tables(pair, [one for one in deltas if one.pair == number]), *slice_tables(pair, seed, alpha))
        for number, pair in enumerate(matched)
    }
    return Comparison(tuple(matched), tuple(deltas), tables, tuple(left_out), alpha, seed)


def _tables(pair: Pair, deltas: list[Delta]) -> tuple[ComparisonTable, ...]:
    """Return what the pair's lenses add to a comparison."""
    found: list[ComparisonTable | None] = []
    if pair.old.run.sampled or pair.new.run.sampled:  # its tables are by level, of which each has few images
        return ()
    for lens in (LENSES[name] for name in pair.lenses if name in LENSES):
        own = [delta for delta in deltas if delta.measure.lens == lens.name]
        reader, sides = lens.reader, [(side.run, side.model) for side in (pair.old, pair.new)]
        found += [] if reader.compare is None or not own else [reader.compare(own)]
        found += [] if reader.compare_overall is None or not own else [reader.compare_overall(sides[0], sides[1])]
    return tuple(table for table in found if table is not None)


def compare_measure(number: int, pair: Pair, measure: Measure, seed: int) -> tuple[list[Delta], list[str]]:
    """Return the deltas of one measure, and the titles of the operators that only one side has."""
    both = [image_values(side.run, measure, side.model, list(pair.images)) for side in (pair.old, pair.new)]
    columns = [column for column in both[0] if column in both[1]]
    alone = sorted({pair.operator_title(operator) for operator, _ in both[0].keys() ^ both[1].keys()})
    if not columns:
        return [], alone
    old, new = (np.stack([values[column] for column in columns], 1) for values in both)
    averaged = set(averaged_operators(measure, pair.old.run, (operator for operator, _ in columns)))
    if measure.unit == "points" and not measure.by_level and len(averaged) > 1:
        counted = [index for index, (operator, _) in enumerate(columns) if operator in averaged]
        columns = [*columns, (AVERAGE, None)]
        old, new = (np.column_stack([each, each[:, counted].mean(1)]) for each in (old, new))
    effects = paired_effects(measure.unit, old, new, yes_or_no=measure.yes_or_no, seed=seed)
    deltas = [
        _delta(number, pair, measure, column, (old[:, k], new[:, k]), _at(effects, k)) for k, column in enumerate(columns)
    ]
    operators = [delta for delta in deltas if delta.operator != AVERAGE]
    averages = [delta for delta in deltas if delta.operator == AVERAGE]
    adjusted = adjust_p_values(operators)
    return averages + [replace(one, adjusted=p) for one, p in zip(operators, adjusted, strict=True)], alone


def adjust_p_values(deltas: Sequence[Delta]) -> list[float]:
    """Return p-values adjusted for the number of tests (Holm); level 0, the clean image, is one test for all operators."""
    tests = [(AVERAGE, 0, delta.p) if delta.level == 0 else (delta.operator, delta.level, delta.p) for delta in deltas]
    distinct = list(dict.fromkeys(tests))
    adjusted = dict(zip(distinct, holm(np.array([p for *_, p in distinct])).tolist(), strict=True))
    return [adjusted[test] for test in tests]


def _at(effects: Effects, column: int) -> tuple[Estimate, float]:
    """Return one column's effect in percent, and its p-value."""
    bounds = (100 * float(values[column]) for values in (effects.value, effects.low, effects.high))
    return Estimate(*bounds), float(effects.p[column])


def _delta(
    number: int, pair: Pair, measure: Measure, column: Column, values: tuple[Array, Array], effect: tuple[Estimate, float]
) -> Delta:
    old, new = values
    before, after = ~np.isnan(old), ~np.isnan(new)
    known = before & after
    change = (new - old)[known] * measure.sign
    return Delta(
        pair=number,
        measure=measure,
        operator=column[0],
        title=pair.operator_title(column[0]),
        level=column[1],
        images=int(known.sum()),
        unpaired=(int((before & ~after).sum()), int((after & ~before).sum())),
        old=float(old[known].mean()) if known.any() else math.nan,
        new=float(new[known].mean()) if known.any() else math.nan,
        effect=effect[0],
        worse=int((change < 0).sum()),
        better=int((change > 0).sum()),
        p=effect[1],
        adjusted=effect[1],
    )
