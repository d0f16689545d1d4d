"""Rules that a new model must keep, judged on what was compared."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator

from brinell.comparison.contrasts import ALPHA, Contrast, Contrasts, operator_title, tell
from brinell.comparison.measures import AVERAGE, CLEAN_IMAGES, MEASURES
from brinell.comparison.paired import holm
from brinell.errors import ConfigError
from brinell.registry import nearest
from brinell.validation import read_yaml, validate


class Rule(BaseModel):
    """A measure that may not get worse by more than `drop` (percentage points or percent: the measure's unit).

    `operators` are names, "all" (each of them) or "average". A `significant` rule is broken only by what is more than
    chance, by the rule's tests of all its operators together (Holm); otherwise by the figure alone.
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
        return MEASURES[value].name

    @field_validator("operators", mode="before")
    @classmethod
    def _several(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @property
    def told(self) -> str:
        """The rule in words."""
        measure = MEASURES[self.measure]
        unit = "%" if measure.unit == "percent" else "point" if self.drop == 1 else "points"
        surely = ", significantly" if self.significant else ""
        named = ", ".join(self.operators)
        under = "" if measure.lens is None else f" under {'any operator' if named == 'all' else named}"
        return self.name or f"{measure.what}{under} may get worse by {self.drop:g} {unit} at most{surely}"


class Gate(BaseModel):
    """The rules, and the share of false alarms that a rule may raise."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rules: tuple[Rule, ...] = Field(min_length=1)
    alpha: float = Field(ALPHA, gt=0, lt=1)


@dataclass(frozen=True)
class Check:
    """One rule on one line; `untested` where a significant rule has too few images to say."""

    rule: Rule
    line: Contrast
    adjusted: float
    state: Literal["kept", "broken", "untested"]

    @property
    def told(self) -> str:
        """The finding in words."""
        level = "" if self.line.level is None else f", level {self.line.level}"
        chance = "" if math.isnan(self.adjusted) else f", p = {self.adjusted:.2g}"
        return f"{operator_title(self.line.operator)}{level}: {tell(self.line)}{chance}"


@dataclass(frozen=True)
class Judgement:
    """What a gate says about what was compared."""

    gate: Gate
    checks: tuple[Check, ...]

    @property
    def broken(self) -> list[Check]:
        """The checks that failed."""
        return [check for check in self.checks if check.state == "broken"]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "passed": not self.broken,
            "checks": [
                {
                    "rule": check.rule.told,
                    "measure": check.rule.measure,
                    "pair": check.line.pair,
                    "operator": check.line.operator,
                    "level": check.line.level,
                    "drop": check.rule.drop,
                    "effect": {key: None if value != value else value for key, value in asdict(check.line.effect).items()},
                    "adjusted": None if math.isnan(check.adjusted) else check.adjusted,
                    "state": check.state,
                }
                for check in self.checks
            ],
        }


def load_gate(path: Path) -> Gate:
    """A gate from its file."""
    content = read_yaml(path, "gate", "rules")
    return validate(Gate, content, lambda place: list((Rule if len(place) > 1 else Gate).model_fields))


def judge(gate: Gate, found: Contrasts) -> Judgement:
    """Every rule on every pair. A rule about what was not compared is an error: it would pass unseen."""
    checks = []
    for rule in gate.rules:
        for pair in range(len(found.pairs)):
            lines = _chosen(rule, found, pair)
            adjusted = holm(np.array([line.p for line in lines]))
            alpha = rule.alpha or gate.alpha
            checks += [
                Check(rule, line, float(p), _state(rule, line, float(p), alpha))
                for line, p in zip(lines, adjusted, strict=True)
            ]
    return Judgement(gate, tuple(checks))


def _chosen(rule: Rule, found: Contrasts, pair: int) -> list[Contrast]:
    lines = [line for line in found.lines if (line.pair, line.measure) == (pair, rule.measure)]
    if not lines:
        there = ", ".join(dict.fromkeys(line.measure for line in found.lines if line.pair == pair))
        raise ConfigError(
            f"the gate has a rule about {rule.measure}, but {found.pairs[pair].told} was compared by {there}; measure it, "
            "or drop the rule"
        )
    chosen = []
    for name in rule.operators:
        mine = [line for line in lines if _is_named(name, line.operator)]
        if not mine:
            known = list(dict.fromkeys(["all", *(line.operator for line in lines)]))
            raise ConfigError(f"the gate's rule about {rule.measure} names {name!r}; {nearest(name, known)}")
        chosen += [line for line in mine if line not in chosen]
    return chosen


def _is_named(name: str, operator: str) -> bool:
    if name == "all":
        return operator != AVERAGE
    return name in (operator, operator.partition(":")[0]) or (name == AVERAGE and operator == CLEAN_IMAGES)


def _state(rule: Rule, line: Contrast, adjusted: float, alpha: float) -> Literal["kept", "broken", "untested"]:
    if math.isnan(line.gain) or (rule.significant and math.isnan(adjusted)):
        return "untested"
    worse = -line.gain > rule.drop + 1e-9
    return "broken" if worse and (adjusted < alpha or not rule.significant) else "kept"
