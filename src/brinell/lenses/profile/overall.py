"""Figures of one model over all operators for leaderboards, and of two models for comparisons, with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping

from brinell.lenses.profile.curves import compute_areas, select_averaged
from brinell.lenses.profile.replicates import TITLES, UNBOUNDED, replicate
from brinell.lenses.profile.robustness import compare_effective
from brinell.lenses.reader import ComparisonTable
from brinell.runs.run import Run
from brinell.runs.statistics import Estimate

EFFECTIVE = "effective_robustness"


def read_overall(run: Run, model: str, baseline: tuple[Run, str] | None) -> dict[str, Estimate]:
    """Return a model's figures by name; effective robustness only against a baseline."""
    if run.sampled:
        return {}
    operators = _operators(run)
    figures = replicate(run, operators)[model]
    found = {name: one.estimate(math.inf if name in UNBOUNDED else 1) for name, one in figures.items()}
    effective = None if baseline is None else compare_effective(baseline, (run, model), operators)
    return found if effective is None else {**found, EFFECTIVE: effective}


def compare_overall(old: tuple[Run, str], new: tuple[Run, str]) -> ComparisonTable | None:
    """Return the figures of two models over the same images and operators, and what changed."""
    if old[0].sampled or new[0].sampled:
        return None
    operators = [name for name in _operators(old[0]) if name in _operators(new[0])]
    before, after = (replicate(run, operators)[model] for run, model in (old, new))
    rows, records = [], []
    for name in (name for name in before if name in after):
        change = after[name].minus(before[name])
        share = name not in UNBOUNDED
        values = (_format(one.value, share=share) for one in (before[name], after[name]))
        rows.append(
            (TITLES[name][0], *values, _change(change, share=share), _verdict(change, more_is_better=TITLES[name][1]))
        )
        records.append(_record(name, before[name].value, after[name].value, change))
    effective = compare_effective(old, new, operators)
    if effective is not None:
        verdict = _verdict(effective, more_is_better=True)
        rows.append(("effective robustness", "", "", _change(effective, share=True), verdict))
        records.append(_record(EFFECTIVE, None, None, effective))
    return ComparisonTable(
        name="overall",
        title="Over all degradations",
        note="Over all operators and levels; intervals by the jackknife over 20 folds of the images, not adjusted for the "
        "number of figures. Effective robustness: accuracy under change above what the old model's loss lets expect.",
        heads=("", "before", "after", "change [95 %]", ""),
        rows=tuple(rows),
        records=tuple(records),
        brief=True,
    )


def _operators(run: Run) -> list[str]:
    areas = compute_areas(run)
    return select_averaged(areas, frozenset(name for _, name in areas if run.facts(name).get("white_box")))


def _record(name: str, old: float | None, new: float | None, change: Estimate) -> Mapping[str, object]:
    bounds = {key: value if math.isfinite(value) else None for key, value in vars(change).items()}
    return {"figure": name, "old": old, "new": new, "change": bounds}


def _format(value: float, *, share: bool) -> str:
    return f"{value:.1%}" if share else f"{value:.3g}"


def _change(change: Estimate, *, share: bool) -> str:
    scale, digits = (100, ".1f") if share else (1, ".2f")
    numbers = [f"{scale * each:+{digits}}" for each in (change.value, change.low, change.high)]
    return numbers[0] if math.isnan(change.low) else f"{numbers[0]} [{numbers[1]}, {numbers[2]}]"


def _verdict(change: Estimate, *, more_is_better: bool) -> str:
    """Return better or worse where the interval says so."""
    if change.low > 0 or change.high < 0:
        return "better" if (change.value > 0) == more_is_better else "worse"
    return ""
