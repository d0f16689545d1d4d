"""Sequential gates: rules about two models, checked while both are measured, until each is decided.

Images come in a random order, and every rule has a confidence sequence, so looking after every block of them is allowed:
together, all rules of a gate decide wrongly with probability `alpha` at most, whenever the run stops.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from brinell.comparison.gates import GateResult
from brinell.comparison.limits import matches
from brinell.comparison.measures import TITLES, Column, averaged_operators, find_measure, image_values
from brinell.comparison.resampling import Array
from brinell.comparison.rules import ALL, Gate, Rule
from brinell.errors import ConfigError, UnknownName
from brinell.lenses.reader import AVERAGE, Measure
from brinell.registry import nearest
from brinell.runs.plain import to_plain
from brinell.runs.run import Run
from brinell.runs.sequences import ConfidenceSequence
from brinell.runs.statistics import Estimate

MARGIN = 2.0  # percentage points: a drop that exceeds what a rule allows by less may pass
State = Literal["passed", "failed", "untested"]


@dataclass(frozen=True)
class SequentialCheck:
    """One rule on the gain of a new model (for drops), or on its figure (for limits), from the images so far.

    `estimate` is the mean with its confidence sequence. The state is "untested" while the rule is not decided.
    """

    rule: Rule
    subject: str
    title: str
    estimate: Estimate
    images: int
    margin: float

    doubt = ""  # a rule that is not decided is untested

    @property
    def state(self) -> State:
        """Whether the rule is decided, and how."""
        low, high = 100 * self.estimate.low, 100 * self.estimate.high
        rule = self.rule
        if rule.drop is not None:
            worse, fine = high < -rule.drop, low > -rule.drop - self.margin
            if worse and fine:  # between the limits, where either is right: by the nearer one, far from both errors
                fine = 100 * self.estimate.value > -rule.drop - self.margin / 2
            return "passed" if fine else "failed" if worse else "untested"
        least, most = (-math.inf if rule.min is None else rule.min), (math.inf if rule.max is None else rule.max)
        if high < least or low > most:
            return "failed"
        return "passed" if low >= least and high <= most else "untested"

    @property
    def finding(self) -> str:
        """The figure so far, in words."""
        sign = "+" if self.rule.drop is not None else ""
        value, low, high = (f"{100 * each:{sign}.1f}" for each in vars(self.estimate).values())
        unit = "points" if self.rule.drop is not None else "%"
        return f"{self.title}: {value} {unit} [{low}, {high}] after {self.images} images"

    @property
    def summary(self) -> str:
        """The figure so far, in words."""
        return self.finding

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        content: dict[str, Any] = to_plain(
            {
                "rule": self.rule.title,
                "measure": self.rule.measure,
                "subject": self.subject,
                "title": self.title,
                "estimate": self.estimate,
                "images": self.images,
                "margin": self.margin,
                "state": self.state,
            }
        )
        return content


@dataclass(frozen=True)
class Series:
    """The values that one rule is about: one per image in the order in which they came, NaN where there is none."""

    rule: Rule
    subject: str
    title: str
    values: Array


def check_sequentially(
    gate: Gate, run: Run, images: Sequence[str], total: int, *, margin: float = MARGIN, alpha: float | None = None
) -> GateResult:
    """Check a gate on the images measured so far, of `total`, in the random order in which they were chosen.

    The run's first model is the old one. Rules share the error rate evenly.
    """
    series = [one for rule in gate.rules for one in _series(rule, run, list(images))]
    own = (gate.alpha if alpha is None else alpha) / len(series)
    checks = [
        SequentialCheck(one.rule, one.subject, one.title, _estimate(one, total, margin, own), _count(one), margin)
        for one in series
    ]
    return GateResult(gate, tuple(checks))


def is_decided(result: GateResult) -> bool:
    """Whether the gate's outcome is known: a rule failed, or all passed."""
    return bool(result.failed) or not result.select("untested")


def describe_state(result: GateResult) -> str:
    """Return how many checks are decided, in words."""
    counts = [(state, len(result.select(state))) for state in ("passed", "failed", "untested")]
    words = {"untested": "not decided yet"}
    return ", ".join(f"{count} {words.get(state, state)}" for state, count in counts if count)


def require_sequential(gate: Gate, models: Sequence[str]) -> None:
    """Raise if a rule can't be decided image by image."""
    if gate.drops and len(models) < 2:
        raise ConfigError(f"a rule about a drop needs two models, the old one first; got {', '.join(models)}")
    for rule in gate.rules:
        if rule.slices:
            raise ConfigError(
                f"a rule about {rule.measure} is about slices, whose images come too rarely to decide it while images are "
                "measured; measure both models in full and use brinell compare --gate"
            )
        if not isinstance(rule.figure, Measure) or rule.figure.unit != "points" or rule.amount is not None:
            raise ConfigError(
                f"a rule about {rule.measure} can't be decided while images are measured, as it is no share; "
                "measure both models in full and use brinell compare --gate"
            )


def _count(series: Series) -> int:
    return int((~np.isnan(series.values)).sum())


def _estimate(series: Series, total: int, margin: float, alpha: float) -> Estimate:
    """Return the mean and its confidence sequence; without replacement if every image has a value."""
    known = series.values[~np.isnan(series.values)]
    least = -1.0 if series.rule.drop is not None else 0.0
    size = total if len(known) == len(series.values) else None
    sequence = ConfidenceSequence(max(margin, 0.1) / 100, size=size, least=least, alpha=alpha)
    sequence.add(known)
    return sequence.estimate


def _series(rule: Rule, run: Run, images: list[str]) -> Iterator[Series]:
    """Yield the values of every column that a rule is about, for each new model."""
    old, *others = run.models
    measure = find_measure(rule.measure)
    before = _columns(run, measure, old, images) if rule.drop is not None else {}
    for new in others or [old]:
        if not {ALL, new} & set(rule.models):
            continue
        after = _columns(run, measure, new, images)
        for column in _chosen(rule, after):
            values = after[column] if rule.drop is None else (after[column] - before[column]) * measure.sign
            subject = new if rule.drop is None else f"{new} against {old}"
            yield Series(rule, subject, _title(run, column), values)


def _columns(run: Run, measure: Measure, model: str, images: list[str]) -> dict[Column, Array]:
    """Return a model's values by operator and level, and their average over operators."""
    columns = image_values(run, measure, model, images)
    averaged = set(averaged_operators(measure, run, (operator for operator, _ in columns)))
    if measure.by_level or len(averaged) < 2:
        return columns
    mean = np.mean([values for (operator, _), values in columns.items() if operator in averaged], axis=0)
    return {**columns, (AVERAGE, None): mean}


def _chosen(rule: Rule, columns: dict[Column, Array]) -> list[Column]:
    """Return the columns that a rule names."""
    chosen: list[Column] = []
    for name in rule.operators:
        mine = [column for column in columns if matches(name, column[0]) and (not rule.levels or column[1] in rule.levels)]
        if not mine:
            known = list(dict.fromkeys([ALL, *(operator for operator, _ in columns)]))
            raise UnknownName(f"a rule about {rule.measure} names {name!r}; {nearest(name, known)}")
        chosen += [column for column in mine if column not in chosen]
    return chosen


def _title(run: Run, column: Column) -> str:
    operator, level = column
    title = TITLES.get(operator) or run.title(operator)
    return title if level is None else f"{title}, level {level}"
