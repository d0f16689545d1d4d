"""Before and after, paired image by image: what was trained on, what was held out, and clean images; and the sentence."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from brinell.comparison.compare import Comparison, Delta
from brinell.comparison.measures import averaged_operators, find_measure, image_values
from brinell.comparison.paired import mean_effects, ratio_effects, share_effects
from brinell.comparison.resampling import Array
from brinell.lenses.reader import AVERAGE, Measure
from brinell.runs.statistics import Estimate

Group = Literal["trained", "held out", "clean", "failures"]
#: what a lens is told by in the sentence
PRIMARY = ("area", "severity", "fragile_shift", "glare", "motion", "random_motion")
NAMED = 3  # operators that are named one by one; more are averaged


@dataclass(frozen=True)
class Effect:
    """What changed in one group of operators, by one measure: means before and after over the images that have both, and
    the change with its 95 % interval, in percentage points or percent of what it was; more is better.
    """

    group: Group
    what: str
    measure: str
    operators: tuple[str, ...]
    unit: Literal["points", "percent"]
    images: int
    before: float
    after: float
    change: Estimate
    p: float

    @property
    def told(self) -> str:
        """The change with half its interval."""
        unit = "points" if self.unit == "points" else "%"
        return f"{signed(self.change.value)}{plus_minus(self.change)} {unit}"


def signed(value: float) -> str:
    """A number with its sign, for people."""
    return "–" if math.isnan(value) else f"{value:+.1f}".replace("-", "−")


def plus_minus(change: Estimate) -> str:
    """Half of an interval, where there is one."""
    half = (change.high - change.low) / 2
    return "" if math.isnan(half) else f" ± {half:.1f}"


@dataclass(frozen=True)
class Verdict:
    """Everything that changed, group by group."""

    effects: tuple[Effect, ...]

    @property
    def sentence(self) -> str:
        """All of it in a sentence."""
        parts, units = [], set()
        for effect in self.effects:
            known = effect.unit in units
            units.add(effect.unit)
            short = f"{signed(effect.change.value)}{plus_minus(effect.change)}"
            unit = "" if known and effect.unit == "points" else " points" if effect.unit == "points" else " %"
            parts.append(f"{effect.what} {short}{unit}")
        return ", ".join(parts)

    def of(self, group: Group) -> list[Effect]:
        """The effects of a group."""
        return [effect for effect in self.effects if effect.group == group]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {"sentence": self.sentence, "effects": [_plain(asdict(effect)) for effect in self.effects]}

    def _repr_html_(self) -> str:
        """The sentence and a table, for notebooks."""
        cells = ("".join(f"<td>{html.escape(str(one))}</td>" for one in row) for row in self.rows())
        return f"<p>{html.escape(self.sentence)}</p><table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """What, before, after, the change with its interval, and how many images, for people."""
        found = []
        for effect in self.effects:
            one = effect.change
            interval = "" if math.isnan(one.low) else f" [{signed(one.low)}, {signed(one.high)}]"
            unit = "points" if effect.unit == "points" else "%"
            values = [f"{x:.1%}" if effect.unit == "points" else f"{x:.3g}" for x in (effect.before, effect.after)]
            what = effect.what
            if effect.group in ("trained", "held out"):
                own = find_measure(effect.measure)
                what += f" ({'1 − ' if own.sign < 0 else ''}{own.what})"
            found.append((what, values[0], values[1], f"{signed(one.value)}{interval} {unit}", str(effect.images)))
        return found


def verdict_of(found: Comparison, trained: Iterable[str], failures: Effect | None = None) -> Verdict:
    """What changed from a pair's old model to its new one. `trained` are names of operators, without their variant."""
    known = set(trained)
    effects: list[Effect] = []
    held_out: list[Effect] = []
    for measure in found.measures(0):
        if measure.name not in PRIMARY:
            continue
        operators = _compared_operators(found, measure)
        own = [operator for operator in operators if operator.partition(":")[0] in known]
        others = averaged_operators(measure, found.pairs[0].old.run, (name for name in operators if name not in own))
        sides = _Sides.of(found, measure)
        effects += _told_by_name(sides, own, "trained")
        if known:
            held_out += _together(sides, others, "held out", "held-out operators")
        else:
            held_out += _told_by_name(sides, others, "held out")
    clean = [_clean(delta) for delta in found.select(0, "clean")]
    return Verdict(_distinct([*effects, *([failures] if failures else []), *held_out, *clean]))


def _compared_operators(found: Comparison, measure: Measure) -> list[str]:
    """Return the operators that were compared by a measure, in the order of the run."""
    deltas = (delta for delta in found.deltas if delta.measure.name == measure.name)
    return list(dict.fromkeys(delta.operator for delta in deltas if delta.operator != AVERAGE))


@dataclass(frozen=True)
class _Sides:
    """One measure before and after: by operator the values of all images."""

    measure: Measure
    old: dict[str, Array]
    new: dict[str, Array]
    titles: dict[str, str]
    seed: int

    @staticmethod
    def of(found: Comparison, measure: Measure) -> _Sides:
        """Those of the only pair."""
        pair = found.pairs[0]
        both = [image_values(side.run, measure, side.model, list(pair.images)) for side in (pair.old, pair.new)]
        old, new = ({operator: values for (operator, _), values in side.items()} for side in both)
        titles = {operator: pair.operator_title(operator) for operator in old}
        return _Sides(measure, old, new, titles, found.seed)


def _told_by_name(sides: _Sides, operators: Sequence[str], group: Group) -> list[Effect]:
    """A few operators one by one, many of them together."""
    if len(operators) > NAMED:
        return _together(sides, operators, group, f"robustness to {len(operators)} operators")
    return [_effect(sides, [one], group, f"robustness to {_named(one, sides.titles[one])}") for one in operators]


def _together(sides: _Sides, operators: Sequence[str], group: Group, what: str) -> list[Effect]:
    """A group in one figure, or operator by operator where figures can't be averaged."""
    if len(operators) > 1 and sides.measure.unit == "points":
        return [_effect(sides, operators, group, what)]
    word = what.partition(" ")[0]  # held-out, robustness
    joined = f"{word} to" if word == "robustness" else word
    return [_effect(sides, [one], group, f"{joined} {_named(one, sides.titles[one])}") for one in operators]


def _distinct(effects: list[Effect]) -> tuple[Effect, ...]:
    """Effects of one name are told apart by their lenses."""
    often = Counter(effect.what for effect in effects)
    return tuple(
        effect if often[effect.what] == 1 else replace(effect, what=f"{effect.what} ({find_measure(effect.measure).lens})")
        for effect in effects
    )


def _effect(sides: _Sides, operators: Sequence[str], group: Group, what: str) -> Effect:
    """The mean over operators within each image, before and after; less is turned into more where it is better."""
    measure = sides.measure
    old, new = (np.mean([side[operator] for operator in operators], axis=0) for side in (sides.old, sides.new))
    if measure.sign < 0:
        old, new = 1 - old, 1 - new
    return effect_of(old, new, group, what, measure.name, tuple(operators), measure.unit, seed=sides.seed)


def effect_of(
    old: Array,
    new: Array,
    group: Group,
    what: str,
    measure: str,
    operators: tuple[str, ...] = (),
    unit: Literal["points", "percent"] = "points",
    *,
    seed: int = 0,
) -> Effect:
    """An effect from values of the same images before and after, NaN where there is none."""
    known = ~np.isnan(old) & ~np.isnan(new)
    columns = old[:, None], new[:, None]
    whole = not (np.nan_to_num(old) % 1).any() and not (np.nan_to_num(new) % 1).any()
    if unit == "percent":
        effects = ratio_effects(*columns, seed=seed)
    else:
        effects = share_effects(*columns) if whole else mean_effects(*columns, seed=seed)
    return Effect(
        group,
        what,
        measure,
        operators,
        unit,
        int(known.sum()),
        float(old[known].mean()) if known.any() else math.nan,
        float(new[known].mean()) if known.any() else math.nan,
        Estimate(*(100 * float(one[0]) for one in (effects.value, effects.low, effects.high))),
        float(effects.p[0]),
    )


def _clean(delta: Delta) -> Effect:
    means = (delta.images, delta.old, delta.new)
    return Effect("clean", "clean accuracy", "clean", (), "points", *means, delta.effect, delta.p)


def _named(operator: str, told: str) -> str:
    """An operator's name in a sentence."""
    if operator.startswith("windows:"):
        return f"a shift of windows, {told}"
    return told if told[:2].isupper() else told[0].lower() + told[1:]


def _plain(value: Any) -> Any:
    """Data that JSON can hold."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
