"""Slices of two models compared: how much each measure changed, on average over operators, for the images of each slice;
and the images of a slice, for leaderboards.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from brinell.comparison.measures import averaged_operators, format_value, image_values, measures_of
from brinell.comparison.paired import MIN_IMAGES, Effects, holm, paired_effects
from brinell.comparison.pairing import Pair
from brinell.comparison.resampling import Array
from brinell.errors import ConfigError
from brinell.lenses.reader import ComparisonTable, Measure
from brinell.runs.plain import to_plain
from brinell.runs.run import Run
from brinell.runs.slices import CLASS, MOST, Slice, find_slices, order_values, read_columns, select_columns, slice_values
from brinell.runs.statistics import Estimate

HEADS = ("", "measure", "before", "after", "change [95 %]", "p", "images", "")


@dataclass(frozen=True)
class _Values:
    """A measure of both models, (images,) each: means over operators."""

    measure: Measure
    old: Array
    new: Array


@dataclass(frozen=True)
class SliceChange:
    """The change of a measure for the images of one slice; the effect is in percentage points."""

    images: int
    old: float
    new: float
    effect: Estimate
    p: float
    adjusted: float
    verdict: str


def slice_tables(pair: Pair, seed: int, alpha: float) -> Iterator[ComparisonTable]:
    """Yield a table for each column of metadata, and for the classes if they are few."""
    if pair.old.run.sampled or pair.new.run.sampled:  # images of a slice have few answers each
        return
    columns = read_columns(pair.old.run)
    divided: dict[str, Mapping[str, str]] = {name: columns[name] for name in select_columns(columns)}
    if not divided:
        return
    classes = slice_values(pair.old.run, CLASS, pair.old.model)
    if 1 < len(set(classes.values())) <= MOST:
        divided[CLASS] = classes
    measured = [found for measure in measures_of(pair.lenses) if (found := _values(pair, measure)) is not None]
    for column, values in divided.items():
        yield _table(pair, column, values, measured, seed=seed, alpha=alpha)


def _values(pair: Pair, measure: Measure) -> _Values | None:
    """Return a measure's mean over operators for each image; None if it has none."""
    if measure.by_level or not measure.ranked or measure.unit != "points":
        return None
    both = [image_values(side.run, measure, side.model, list(pair.images)) for side in (pair.old, pair.new)]
    common = [column for column in both[0] if column in both[1]]
    counted = set(averaged_operators(measure, pair.old.run, (operator for operator, _ in common)))
    chosen = [column for column in common if column[0] in counted] or common
    if not chosen:
        return None
    old, new = (np.stack([values[column] for column in chosen], 1).mean(1) for values in both)
    return _Values(measure, old, new)


def _table(
    pair: Pair, column: str, values: Mapping[str, str], measured: list[_Values], *, seed: int, alpha: float
) -> ComparisonTable:
    places = np.array([values.get(image, "") for image in pair.images])
    names = order_values({value for value in places.tolist() if value})
    rows, records = [], []
    for one in measured:
        found = [_effects(one, places == name, seed) for name in names]
        adjusted = holm(np.array([effects.p[0] for effects in found])).tolist()
        for name, effects, p in zip(names, found, adjusted, strict=True):
            change = _change(one, places == name, effects, p, alpha)
            records.append({"column": column, "slice": name, "measure": one.measure.name, **to_plain(change)})
            rows.append((name, one.measure.name, *_cells(one.measure, change)))
    return ComparisonTable(
        name="slices",
        title=f"By {column}",
        note="Means over operators for the images of each slice; p-values are adjusted for the slices of a column (Holm).",
        heads=HEADS,
        rows=tuple(sorted(rows, key=lambda row: names.index(row[0]))),
        records=tuple(records),
        brief=True,
    )


def _effects(values: _Values, chosen: np.ndarray, seed: int) -> Effects:
    old, new = values.old[chosen][:, None], values.new[chosen][:, None]
    return paired_effects(values.measure.unit, old, new, yes_or_no=values.measure.yes_or_no, seed=seed)


def _change(values: _Values, chosen: np.ndarray, effects: Effects, adjusted: float, alpha: float) -> SliceChange:
    known = chosen & ~np.isnan(values.old) & ~np.isnan(values.new)
    old, new = (float(each[known].mean()) if known.any() else math.nan for each in (values.old, values.new))
    effect = Estimate(*(100 * float(each[0]) for each in (effects.value, effects.low, effects.high)))
    p, gain = float(effects.p[0]), effect.value * values.measure.sign
    verdict = "no clear difference"
    if math.isnan(p):
        verdict = f"fewer than {MIN_IMAGES} images"
    elif adjusted < alpha and gain != 0:
        verdict = "better" if gain > 0 else "worse"
    return SliceChange(int(known.sum()), old, new, effect, p, adjusted, verdict)


def _cells(measure: Measure, change: SliceChange) -> tuple[str, ...]:
    effect = change.effect
    interval = "" if math.isnan(effect.low) else f" [{effect.low:+.1f}, {effect.high:+.1f}]"
    return (
        format_value(measure, change.old),
        format_value(measure, change.new),
        "–" if math.isnan(effect.value) else f"{effect.value:+.1f}{interval}",
        "–" if math.isnan(change.adjusted) else f"{change.adjusted:.2g}",
        str(change.images),
        "" if change.verdict == "no clear difference" else change.verdict,
    )


# ---- leaderboards ----


def list_slices(runs: Sequence[Run], text: str) -> list[Slice]:
    """Return the slices that a text stands for, COLUMN=VALUE or COLUMN, by the first run that is finished."""
    first = next((run for run in runs if run.finished), None)
    return [] if first is None else list(find_slices(first, Slice.parse(text), next(iter(first.models))))


def images_of(one: Slice, runs: Sequence[Run]) -> list[str]:
    """Return the images of a slice, by the first run: all measured the same images."""
    if one.value is None:
        raise ConfigError(f"a leaderboard is of one slice; give a value: {one.column}=VALUE")
    return find_slices(runs[0], one, next(iter(runs[0].models)))[one]
