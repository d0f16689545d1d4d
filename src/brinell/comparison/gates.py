"""Gates: rules that a new model must meet, checked on a comparison."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from brinell.comparison.compare import ALPHA, Comparison, Delta, adjust_p_values, format_change
from brinell.comparison.measures import CLEAN_IMAGES, find_measure
from brinell.errors import ConfigError
from brinell.lenses.reader import AVERAGE
from brinell.registry import nearest
from brinell.runs.plain import to_plain
from brinell.validation import read_yaml, validate

State = Literal["passed", "failed", "untested"]


class Rule(BaseModel):
    """A measure that may not get worse by more than `drop` (percentage points or percent: the measure's unit).

    `operators` are names, "all" (each of them) or "average". A `significant` rule fails only on a change that is more than
    chance, by the rule's tests of all its operators together (Holm); otherwise the figure alone decides.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    measure: str
    drop: float = Field(ge=0)
    operators: tuple[str, ...] = ("all",)
    significant: bool = True
    alpha: float | None = Field(None, gt=0, lt=1)
    name: str | None = None

    @field_validator("measure")
    @classmethod
    def _known(cls, value: str) -> str:
        return find_measure(value).name

    @field_validator("operators", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @property
    def title(self) -> str:
        """The rule in words."""
        measure = find_measure(self.measure)
        unit = "%" if measure.unit == "percent" else "point" if self.drop == 1 else "points"
        named = ", ".join(self.operators)
        under = "" if measure.lens is None else f" under {'any operator' if named == 'all' else named}"
        significantly = "significantly " if self.significant else ""
        return self.name or f"{measure.what}{under} may not get {significantly}worse by more than {self.drop:g} {unit}"


class Gate(BaseModel):
    """The rules, and how often a rule may fail by chance alone (`alpha`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rules: tuple[Rule, ...] = Field(min_length=1)
    alpha: float = Field(ALPHA, gt=0, lt=1)


@dataclass(frozen=True)
class Check:
    """One rule on one delta; `untested` if a significant rule has too few images."""

    rule: Rule
    delta: Delta
    adjusted: float
    state: State

    @property
    def summary(self) -> str:
        """The change that was checked, in words."""
        level = "" if self.delta.level is None else f", level {self.delta.level}"
        p = "" if math.isnan(self.adjusted) else f", p = {self.adjusted:.2g}"
        return f"{self.delta.title}{level}: {format_change(self.delta)}{p}"


@dataclass(frozen=True)
class GateResult:
    """A gate's checks of a comparison."""

    gate: Gate
    checks: tuple[Check, ...]

    def select(self, state: State) -> list[Check]:
        """Return the checks in a state."""
        return [check for check in self.checks if check.state == state]

    @property
    def failed(self) -> list[Check]:
        """The checks that failed."""
        return self.select("failed")

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return not self.failed

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "passed": self.passed,
            "checks": [
                {
                    "rule": check.rule.title,
                    "measure": check.rule.measure,
                    "pair": check.delta.pair,
                    "operator": check.delta.operator,
                    "level": check.delta.level,
                    "drop": check.rule.drop,
                    "effect": to_plain(check.delta.effect),
                    "adjusted": to_plain(check.adjusted),
                    "state": check.state,
                }
                for check in self.checks
            ],
        }


def load_gate(path: Path) -> Gate:
    """Read a gate from its file."""
    content = read_yaml(path, "gate", "rules")
    return validate(Gate, content, lambda place: list((Rule if len(place) > 1 else Gate).model_fields))


def check_gate(gate: Gate, comparison: Comparison) -> GateResult:
    """Check every rule on every pair. A rule about something that was not compared raises instead of passing unseen."""
    checks = []
    for rule in gate.rules:
        for pair in range(len(comparison.pairs)):
            deltas = _select(rule, comparison, pair)
            adjusted = adjust_p_values(deltas)
            alpha = rule.alpha or gate.alpha
            checks += [
                Check(rule, delta, p, _state(rule, delta, p, alpha)) for delta, p in zip(deltas, adjusted, strict=True)
            ]
    return GateResult(gate, tuple(checks))


def _select(rule: Rule, comparison: Comparison, pair: int) -> list[Delta]:
    """Return the deltas that a rule is about."""
    deltas = [delta for delta in comparison.deltas if (delta.pair, delta.measure.name) == (pair, rule.measure)]
    if not deltas:
        known = ", ".join(measure.name for measure in comparison.measures(pair))
        raise ConfigError(
            f"the gate has a rule about {rule.measure}, but {comparison.pairs[pair].title} was compared by {known}; "
            "measure it, or drop the rule"
        )
    selected: list[Delta] = []
    for name in rule.operators:
        mine = [delta for delta in deltas if _matches(name, delta.operator)]
        if not mine:
            known_names = list(dict.fromkeys(["all", *(delta.operator for delta in deltas)]))
            raise ConfigError(f"the gate's rule about {rule.measure} names {name!r}; {nearest(name, known_names)}")
        selected += [delta for delta in mine if delta not in selected]
    return selected


def _matches(name: str, operator: str) -> bool:
    if name == "all":
        return operator != AVERAGE
    return name in (operator, operator.partition(":")[0]) or (name == AVERAGE and operator == CLEAN_IMAGES)


def _state(rule: Rule, delta: Delta, adjusted: float, alpha: float) -> State:
    if math.isnan(delta.gain) or (rule.significant and math.isnan(adjusted)):
        return "untested"
    worse = -delta.gain > rule.drop + 1e-9
    return "failed" if worse and (adjusted < alpha or not rule.significant) else "passed"
