"""Gates: rules checked on one run, or on a comparison of runs."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np

from brinell.comparison.compare import Comparison, Delta, adjust_p_values, compare_measure, format_change
from brinell.comparison.limits import check_limits, matches
from brinell.comparison.paired import holm
from brinell.comparison.rules import ALL, Gate, Rule
from brinell.errors import ConfigError
from brinell.registry import nearest
from brinell.report.grid import Grid, to_html, to_text
from brinell.runs.plain import to_plain
from brinell.runs.run import Run
from brinell.runs.slices import Slice, find_slices
from brinell.runs.store import GATE

State = Literal["passed", "failed", "untested"]
SHOWN = 4  # failed checks of a rule that are spelt out


class Check(Protocol):
    """One rule on one figure, or on the change of one; `untested` if there are too few images."""

    @property
    def rule(self) -> Rule:
        """What is required."""
        ...

    @property
    def subject(self) -> str:
        """The model, or the pair of models, that was checked."""
        ...

    @property
    def title(self) -> str:
        """Operator and level, for people."""
        ...

    @property
    def finding(self) -> str:
        """The figure that was checked, in words."""
        ...

    @property
    def summary(self) -> str:
        """The figure that was checked, and what was expected, in words."""
        ...

    @property
    def doubt(self) -> str:
        """Why a figure fails that meets its limit by itself."""
        ...

    @property
    def state(self) -> str:
        """One of `State`."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        ...


@dataclass(frozen=True)
class DropCheck:
    """A rule about a drop on one delta. `subject` names the pair; `adjusted` is the p-value over the rule's operators."""

    rule: Rule
    delta: Delta
    subject: str
    adjusted: float
    state: State
    slice: str = ""

    @property
    def title(self) -> str:
        """Operator, level and slice, for people."""
        level = "" if self.delta.level is None else f"level {self.delta.level}"
        return ", ".join(filter(None, (self.delta.title, level, self.slice)))

    doubt = ""  # a drop that may be chance passes

    @property
    def summary(self) -> str:
        """The change that was checked, in words."""
        return self.finding

    @property
    def finding(self) -> str:
        """The change that was checked, in words."""
        p = "" if math.isnan(self.adjusted) else f", p = {self.adjusted:.2g}"
        return f"{self.title}: {format_change(self.delta)}{p}"

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "rule": self.rule.title,
            "measure": self.rule.measure,
            "pair": self.delta.pair,
            "operator": self.delta.operator,
            "level": self.delta.level,
            "slice": self.slice or None,
            "drop": self.rule.drop,
            "effect": to_plain(self.delta.effect),
            "adjusted": to_plain(self.adjusted),
            "state": self.state,
        }


@dataclass(frozen=True)
class RuleResult:
    """A rule, its state over all its checks, and what was checked, in a few lines for people."""

    rule: Rule
    state: State
    lines: tuple[str, ...]


@dataclass(frozen=True)
class GateResult:
    """A gate's checks of a run, or of a comparison."""

    gate: Gate
    checks: tuple[Check, ...]

    def select(self, state: State) -> list[Check]:
        """Return the checks in a state."""
        return [check for check in self.checks if check.state == state]

    def checks_of(self, rule: Rule) -> list[Check]:
        """Return the checks of one rule."""
        return [check for check in self.checks if check.rule is rule]

    @property
    def failed(self) -> list[Check]:
        """The checks that failed."""
        return self.select("failed")

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return not self.failed

    @property
    def subjects(self) -> list[str]:
        """The models, or pairs of models, that were checked."""
        return list(dict.fromkeys(check.subject for check in self.checks))

    @property
    def by_rule(self) -> list[RuleResult]:
        """Each rule with its state, and the checks that failed or the only one."""
        return [self._result(rule) for rule in self.gate.rules]

    def _result(self, rule: Rule) -> RuleResult:
        checks = self.checks_of(rule)
        states = {check.state for check in checks}
        state: State = "failed" if "failed" in states else "passed" if "passed" in states else "untested"
        shown = [check for check in checks if check.state == "failed"] or (checks if len(checks) == 1 else [])
        several = len(self.subjects) > 1
        lines = [f"{check.subject}, {check.finding}" if several else check.finding for check in shown[:SHOWN]]
        if len(shown) > SHOWN:
            lines.append(f"and {len(shown) - SHOWN} more")
        counts = [(word, sum(check.state == word for check in checks)) for word in ("passed", "untested")]
        if len(checks) > 1:
            rest = ", ".join(f"{count} {word}" for word, count in counts if count)
            lines += [f"{rest} of {len(checks)} checks"] if rest else []
        return RuleResult(rule, state, tuple(lines))

    @property
    def verdict(self) -> str:
        """The result in a few words."""
        results = self.by_rule
        failed, untested = (sum(one.state == state for one in results) for state in ("failed", "untested"))
        note = f" ({untested} untested: too few images)" if untested else ""
        if failed:
            return f"{failed} of {len(results)} rules failed{note}"
        return ("the rule passed" if len(results) == 1 else f"all {len(results)} rules passed") + note

    @property
    def hint(self) -> str:
        """What to do about figures that fail by their intervals alone."""
        if not any(check.doubt for check in self.checks):
            return ""
        return "Where the estimate meets a limit and the interval doesn't: measure more images, or use require: estimate."

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {"passed": self.passed, "checks": [check.to_json() for check in self.checks]}

    def __str__(self) -> str:
        return to_text(self._shown())

    def _repr_html_(self) -> str:
        """Return the rules with their results, for notebooks."""
        return to_html(self._shown())

    def _shown(self) -> list[Any]:
        rows = tuple((one.rule.title, one.state, "\n".join(one.lines)) for one in self.by_rule)
        grid = Grid(("rule", "", "result"), rows, left=frozenset({0, 1, 2}))
        return [grid, f"Gate: {self.verdict}.", *filter(None, [self.hint])]


# ---- one run ----


def check_run(gate: Gate, run: Run) -> GateResult:
    """Check a finished run. A rule about something that was not measured raises instead of passing unseen."""
    if gate.drops:
        raise ConfigError(
            f"a rule about {gate.drops[0].measure} has a drop, which needs two runs: brinell compare OLD NEW --gate FILE; "
            "for one run, use min or max"
        )
    return GateResult(gate, tuple(check_limits(gate, run.require_finished())))


def store_gate(run: Run, result: GateResult) -> None:
    """Write the rules and their checks into the run's folder, for reports."""
    content = {"version": 1, "gate": result.gate.to_json(), **result.to_json()}
    run.store.write(json.dumps(content, indent=1, ensure_ascii=False).encode(), GATE)


def stored_rules(run: Run) -> dict[str, Any]:
    """Return the rules that a run was last checked by."""
    rules: dict[str, Any] = run.store.read_json(GATE)["gate"]
    return rules


# ---- a comparison ----


def check_gate(gate: Gate, comparison: Comparison) -> GateResult:
    """Check every rule on every pair: drops on what changed, limits on the new model."""
    checks: list[Check] = []
    for pair in comparison.pairs:
        checks += check_limits(gate, pair.new.run, [pair.new.model])
    for rule in gate.drops:
        for number, pair in enumerate(comparison.pairs):
            if not {ALL, pair.new.model} & set(rule.models):
                continue
            named, deltas = _list_deltas(rule, comparison, number)
            adjusted = holm(np.array([delta.p for delta in deltas])).tolist() if rule.slices else adjust_p_values(deltas)
            alpha = rule.alpha or gate.alpha
            checks += [
                DropCheck(rule, delta, pair.title, p, _state(rule, delta, p, alpha), name)
                for name, delta, p in zip(named, deltas, adjusted, strict=True)
            ]
    return GateResult(gate, tuple(checks))


def _list_deltas(rule: Rule, comparison: Comparison, number: int) -> tuple[list[str], list[Delta]]:
    """Return the deltas that a rule is about, with the names of their slices; those of slices are computed here."""
    measured = [delta for delta in comparison.deltas if (delta.pair, delta.measure.name) == (number, rule.measure)]
    whole = _select(rule, comparison, number, measured)
    if not rule.slices:
        return [""] * len(whole), whole
    pair, names, deltas = comparison.pairs[number], [], []
    for text in rule.slices:
        for one, members in find_slices(pair.old.run, Slice.parse(text), pair.old.model).items():
            inside = set(members)
            part = replace(pair, images=tuple(image for image in pair.images if image in inside))
            own = compare_measure(number, part, whole[0].measure, comparison.seed)[0] if part.images else []
            found = _select(rule, comparison, number, own) if own else []
            names += [str(one)] * len(found)
            deltas += found
    return names, deltas


def _select(rule: Rule, comparison: Comparison, pair: int, deltas: list[Delta]) -> list[Delta]:
    """Return those deltas that a rule is about."""
    if not deltas:
        known = ", ".join(measure.name for measure in comparison.measures(pair))
        raise ConfigError(
            f"the gate has a rule about {rule.measure}, but {comparison.pairs[pair].title} was compared by {known}; "
            "measure it, or drop the rule"
        )
    selected: list[Delta] = []
    for name in rule.operators:
        mine = [delta for delta in deltas if matches(name, delta.operator)]
        if not mine:
            known_names = list(dict.fromkeys([ALL, *(delta.operator for delta in deltas)]))
            raise ConfigError(f"the gate's rule about {rule.measure} names {name!r}; {nearest(name, known_names)}")
        selected += [delta for delta in mine if delta not in selected]
    return [delta for delta in selected if not rule.levels or delta.level in rule.levels]


def _state(rule: Rule, delta: Delta, adjusted: float, alpha: float) -> State:
    if math.isnan(delta.gain) or (rule.significant and math.isnan(adjusted)):
        return "untested"
    assert rule.drop is not None
    worse = -delta.gain > rule.drop + 1e-9
    return "failed" if worse and (adjusted < alpha or not rule.significant) else "passed"
