"""The effect of hardening, before and after, paired by image: trained and held-out operators, failures and clean images."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from brinell.comparison.compare import Comparison, Delta
from brinell.comparison.measures import averaged_operators, find_measure, image_values
from brinell.comparison.paired import mean_effects, ratio_effects, share_effects
from brinell.comparison.resampling import Array
from brinell.lenses.lens import LENSES
from brinell.lenses.reader import AVERAGE, Measure
from brinell.registry import VariantId
from brinell.runs.plain import to_plain
from brinell.runs.statistics import Estimate

Group = Literal["trained", "held out", "clean", "failures"]
Unit = Literal["points", "percent"]
NAMED = 3  # operators that are listed one by one; more are averaged


@dataclass(frozen=True)
class GroupEffect:
    """The effect on a group of operators, by one measure; higher is better.

    `before` and `after` are means over the images that have both values. `change` is in percentage points, or in percent of
    the value before, with its 95 % interval.
    """

    group: Group
    what: str
    measure: str
    operators: tuple[str, ...]
    unit: Unit
    images: int
    before: float
    after: float
    change: Estimate
    p: float


def format_signed(value: float) -> str:
    """Return a number with its sign, for people."""
    return "–" if math.isnan(value) else f"{value:+.1f}".replace("-", "−")


def format_plus_minus(change: Estimate) -> str:
    """Return half the width of an interval, if there is one."""
    half = (change.high - change.low) / 2
    return "" if math.isnan(half) else f" ± {half:.1f}"


@dataclass(frozen=True)
class HardeningEffect:
    """Everything that hardening changed, group by group."""

    effects: tuple[GroupEffect, ...]

    @property
    def sentence(self) -> str:
        """All effects in a sentence."""
        parts, units = [], set()
        for effect in self.effects:
            known = effect.unit in units
            units.add(effect.unit)
            change = f"{format_signed(effect.change.value)}{format_plus_minus(effect.change)}"
            unit = "" if known and effect.unit == "points" else " points" if effect.unit == "points" else " %"
            parts.append(f"{effect.what} {change}{unit}")
        return ", ".join(parts)

    def of(self, group: Group) -> list[GroupEffect]:
        """Return the effects on a group."""
        return [effect for effect in self.effects if effect.group == group]

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {"sentence": self.sentence, "effects": to_plain(self.effects)}

    def _repr_html_(self) -> str:
        """Return the sentence and a table, for notebooks."""
        cells = ("".join(f"<td>{html.escape(str(one))}</td>" for one in row) for row in self.rows())
        return f"<p>{html.escape(self.sentence)}</p><table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"

    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """Return a table for people: what, before, after, the change with its interval, and the number of images."""
        found = []
        for effect in self.effects:
            change = effect.change
            interval = "" if math.isnan(change.low) else f" [{format_signed(change.low)}, {format_signed(change.high)}]"
            unit = "points" if effect.unit == "points" else "%"
            values = [f"{x:.1%}" if effect.unit == "points" else f"{x:.3g}" for x in (effect.before, effect.after)]
            what = effect.what
            if effect.group in ("trained", "held out"):
                measure = find_measure(effect.measure)
                what += f" ({'1 − ' if measure.sign < 0 else ''}{measure.what})"
            changed = f"{format_signed(change.value)}{interval} {unit}"
            found.append((what, values[0], values[1], changed, str(effect.images)))
        return found


def find_effect(comparison: Comparison, trained: Iterable[str], failures: GroupEffect | None = None) -> HardeningEffect:
    """Return what changed from the old model to the new one. `trained` are names of operators, without their variant."""
    known = set(trained)
    effects: list[GroupEffect] = []
    held_out: list[GroupEffect] = []
    for measure in filter(_is_headline, comparison.measures(0)):
        operators = _compared_operators(comparison, measure)
        own = [operator for operator in operators if VariantId.parse(operator).name in known]
        rest = [operator for operator in operators if operator not in own]
        others = averaged_operators(measure, comparison.pairs[0].old.run, rest)
        values = _ImageValues.of(comparison, measure)
        effects += _list_or_average(values, own, "trained")
        if known:
            held_out += _average(values, others, "held out", "held-out operators")
        else:
            held_out += _list_or_average(values, others, "held out")
    clean = [_clean_effect(delta) for delta in comparison.select(0, "clean")]
    return HardeningEffect(_name_distinctly([*effects, *([failures] if failures else []), *held_out, *clean]))


def _is_headline(measure: Measure) -> bool:
    """Whether the effect is reported by a measure: a lens's headlines, or else its first one."""
    if measure.lens is None:
        return False
    own = LENSES[measure.lens].reader.measures
    return measure.headline or (measure == own[0] and not any(one.headline for one in own))


def _compared_operators(comparison: Comparison, measure: Measure) -> list[str]:
    """Return the operators that were compared by a measure, in the order of the run."""
    deltas = (delta for delta in comparison.deltas if delta.measure.name == measure.name)
    return list(dict.fromkeys(delta.operator for delta in deltas if delta.operator != AVERAGE))


@dataclass(frozen=True)
class _ImageValues:
    """A measure's values before and after: one per image, by operator."""

    measure: Measure
    old: dict[str, Array]
    new: dict[str, Array]
    titles: dict[str, str]
    seed: int

    @staticmethod
    def of(comparison: Comparison, measure: Measure) -> _ImageValues:
        """Return the values of the only pair."""
        pair = comparison.pairs[0]
        both = [image_values(side.run, measure, side.model, list(pair.images)) for side in (pair.old, pair.new)]
        old, new = ({operator: values for (operator, _), values in side.items()} for side in both)
        titles = {operator: pair.operator_title(operator) for operator in old}
        return _ImageValues(measure, old, new, titles, comparison.seed)

    def phrase(self, operator: str) -> str:
        """Return an operator's name in a sentence."""
        title = self.titles[operator]
        template = dict(self.measure.phrases).get(VariantId.parse(operator).name)
        if template is not None:
            return template.format(title=title)
        return title if title[:2].isupper() else title[0].lower() + title[1:]


def _list_or_average(values: _ImageValues, operators: Sequence[str], group: Group) -> list[GroupEffect]:
    """Return the effects on a few operators one by one, on many of them as an average."""
    if len(operators) > NAMED:
        return _average(values, operators, group, f"robustness to {len(operators)} operators")
    return [_effect(values, [one], group, f"robustness to {values.phrase(one)}") for one in operators]


def _average(values: _ImageValues, operators: Sequence[str], group: Group, what: str) -> list[GroupEffect]:
    """Return the average effect on operators, or one by one if the measure can't be averaged."""
    if len(operators) > 1 and values.measure.unit == "points":
        return [_effect(values, operators, group, what)]
    word = what.partition(" ")[0]  # held-out, robustness
    prefix = f"{word} to" if word == "robustness" else word
    return [_effect(values, [one], group, f"{prefix} {values.phrase(one)}") for one in operators]


def _name_distinctly(effects: list[GroupEffect]) -> tuple[GroupEffect, ...]:
    """Add the lens to the names of effects that are named alike."""
    counts = Counter(effect.what for effect in effects)
    return tuple(
        effect if counts[effect.what] == 1 else replace(effect, what=f"{effect.what} ({find_measure(effect.measure).lens})")
        for effect in effects
    )


def _effect(values: _ImageValues, operators: Sequence[str], group: Group, what: str) -> GroupEffect:
    """Return the effect on the mean over operators; shares where lower is better are turned around."""
    measure = values.measure
    old, new = (np.mean([side[operator] for operator in operators], axis=0) for side in (values.old, values.new))
    if measure.sign < 0:
        old, new = 1 - old, 1 - new
    subject = Subject(group, what, measure.name, tuple(operators), measure.unit)
    return effect_of(old, new, subject, seed=values.seed)


@dataclass(frozen=True)
class Subject:
    """What an effect is about."""

    group: Group
    what: str
    measure: str
    operators: tuple[str, ...] = ()
    unit: Unit = "points"


def effect_of(old: Array, new: Array, subject: Subject, *, seed: int = 0) -> GroupEffect:
    """Return the effect from values of the same images before and after, NaN where there is none."""
    known = ~np.isnan(old) & ~np.isnan(new)
    columns = old[:, None], new[:, None]
    yes_or_no = not (np.nan_to_num(old) % 1).any() and not (np.nan_to_num(new) % 1).any()
    if subject.unit == "percent":
        effects = ratio_effects(*columns, seed=seed)
    else:
        effects = share_effects(*columns) if yes_or_no else mean_effects(*columns, seed=seed)
    return GroupEffect(
        subject.group,
        subject.what,
        subject.measure,
        subject.operators,
        subject.unit,
        images=int(known.sum()),
        before=float(old[known].mean()) if known.any() else math.nan,
        after=float(new[known].mean()) if known.any() else math.nan,
        change=Estimate(*(100 * float(one[0]) for one in (effects.value, effects.low, effects.high))),
        p=float(effects.p[0]),
    )


def _clean_effect(delta: Delta) -> GroupEffect:
    means = (delta.images, delta.old, delta.new)
    return GroupEffect("clean", "clean accuracy", "clean", (), "points", *means, delta.effect, delta.p)
