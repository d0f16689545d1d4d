"""Rules that models must meet: limits on what one run measured, and on what may get worse between two runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from brinell.comparison.compare import ALPHA
from brinell.comparison.measures import Figure, find_figure, find_measure
from brinell.errors import ConfigError
from brinell.lenses.reader import AVERAGE, Measure
from brinell.runs.slices import Slice
from brinell.validation import read_yaml, validate

ALL = "all"
HALF = 50.0  # percent: the accuracy, or share of broken images, at which a model counts as failing
Require = Literal["interval", "estimate"]
_LIMITS = ("min", "max", "threshold")


def _listed(value: Any) -> Any:
    """Let one name or number stand for a list of one."""
    return (value,) if isinstance(value, (str, int, float)) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]
Levels = Annotated[tuple[int, ...], BeforeValidator(_listed)]


class Rule(BaseModel):
    """A limit on a measure of one run (`min`, `max`), or on how much worse it may get between two runs (`drop`).

    `operators` are names, "all" (each of them) or "average"; `models` are names or "all"; `slices` are images to look at by
    themselves: COLUMN=VALUE, or COLUMN for each of its values, where the column is one of metadata or `class`. A limit is
    met if the whole 95 % interval meets it, or the figure alone (`require`: "interval" or "estimate"). A `significant`
    drop fails only if it is more than chance, by the rule's tests of all its operators and slices together (Holm). Shares
    are in percent.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    measure: str
    operators: Names = (ALL,)
    models: Names = (ALL,)
    slices: Names = ()
    levels: Levels = ()
    amount: float | None = None
    threshold: float | None = Field(None, gt=0, lt=100)
    min: float | None = None
    max: float | None = None
    require: Require | None = None
    drop: float | None = Field(None, ge=0)
    significant: bool = True
    alpha: float | None = Field(None, gt=0, lt=1)
    name: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_percentages(cls, value: Any) -> Any:
        if not isinstance(value, Mapping) or not isinstance(value.get("measure"), str):
            return value
        shares = ("threshold", *(("min", "max") if find_figure(value["measure"]).unit == "points" else ()))
        return {key: _percentage(key, each) if key in shares else each for key, each in value.items()}

    @model_validator(mode="after")
    def _check(self) -> Rule:
        limits = [key for key in ("min", "max") if getattr(self, key) is not None]
        if bool(limits) == (self.drop is not None):
            raise ConfigError(
                f"a rule about {self.measure} needs a limit: min or max for one run, or drop between two runs"
            )
        if self.drop is None:
            self._check_limit(find_figure(self.measure))
        else:
            self._check_drop(find_measure(self.measure))
        for one in self.slices:
            Slice.parse(one)
        if self.slices and not isinstance(self.figure, Measure):
            raise ConfigError(f"{self.measure} is not measured image by image; leave slices out of its rule")
        if self.levels and self.amount is not None:
            raise ConfigError(f"a rule about {self.measure} has levels and an amount; give one of them")
        if self.levels and not self.figure.by_level:
            raise ConfigError(
                f"{self.measure} is one figure over all levels; leave levels out of its rule, or use accuracy"
            )
        if self.amount is not None and self.figure.by_amount is None:
            raise ConfigError(f"{self.measure} is not measured by amounts; leave amount out of its rule")
        return self

    def _check_limit(self, figure: Figure) -> None:
        given = self.model_fields_set & {"significant", "alpha"}
        if given:
            raise ConfigError(
                f"{given.pop()} belongs to a drop between two runs; a limit has require: interval or estimate"
            )
        if figure.by_level and not self.levels and self.amount is None:
            raise ConfigError(f"a limit on {self.measure} needs levels (levels: 10) or an amount in the operator's unit")
        if self.threshold is not None and (isinstance(figure, Measure) or figure.unit == "points"):
            raise ConfigError(f"{self.measure} has no threshold; only failure points have one")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ConfigError(f"a rule about {self.measure} has min {self.min:g} above max {self.max:g}")

    def _check_drop(self, measure: Measure) -> None:
        given = self.model_fields_set & {"require", "threshold", "amount"}
        if given:
            raise ConfigError(f"{given.pop()} belongs to a limit (min or max) on {measure.name}, and not to a drop")

    @property
    def figure(self) -> Figure:
        """What the rule is about."""
        return find_figure(self.measure)

    @property
    def share(self) -> bool:
        """Whether limits are in percent."""
        return self.figure.unit == "points"

    @property
    def title(self) -> str:
        """The rule's name, or the rule in words."""
        return self.name or self.description

    @property
    def heading(self) -> str:
        """The rule in words, after its name if it has one."""
        return self.description if self.name is None else f"{self.name} ({self.description})"

    @property
    def description(self) -> str:
        """The rule in words."""
        figure, named = self.figure, ", ".join(self.operators)
        what = figure.what.format(threshold=HALF if self.threshold is None else self.threshold)
        named = "any operator" if named == ALL else "operators on average" if named == AVERAGE else named
        under = "" if figure.lens is None else f" under {named}{self._place}"
        under += f" for {' and '.join(self.slices)}" if self.slices else ""
        if self.drop is None:
            return f"{what}{under}: {self.limit}"
        unit = "%" if figure.unit == "percent" else "point" if self.drop == 1 else "points"
        significantly = "significantly " if self.significant else ""
        return f"{what}{under} may not get {significantly}worse by more than {self.drop:g} {unit}"

    @property
    def _place(self) -> str:
        if self.amount is not None:
            return f" at {self.amount:g}"
        word = "level" if len(self.levels) == 1 else "levels"
        return f" at {word} {', '.join(map(str, self.levels))}" if self.levels else ""

    @property
    def limit(self) -> str:
        """The limit in words."""
        unit = " %" if self.share else ""
        bounds = (("at least", self.min), ("at most", self.max))
        return " and ".join(f"{words} {bound:g}{unit}" for words, bound in bounds if bound is not None)

    def to_json(self) -> dict[str, Any]:
        """Return the rule as it can be given again: what was set, with percentages as text."""
        content = self.model_dump(mode="json", exclude_defaults=True)
        shares = ("threshold", *(("min", "max") if self.share else ()))
        return {key: f"{value:g} %" if key in shares else value for key, value in content.items()}


class Gate(BaseModel):
    """The rules, how limits are met, and how often a rule about a drop may fail by chance alone (`alpha`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rules: tuple[Rule, ...] = Field(min_length=1)
    require: Require = "interval"
    alpha: float = Field(ALPHA, gt=0, lt=1)

    @model_validator(mode="after")
    def _reachable(self) -> Gate:
        for rule in self.rules:
            certain = rule.share and (rule.min == 100 or rule.max == 0)
            if certain and (rule.require or self.require) == "interval":
                raise ConfigError(
                    f"no interval is entirely {rule.limit}, so a rule about {rule.measure} can't be met; "
                    "add require: estimate, or allow for chance"
                )
        return self

    @property
    def limits(self) -> list[Rule]:
        """The rules about one run."""
        return [rule for rule in self.rules if rule.drop is None]

    @property
    def drops(self) -> list[Rule]:
        """The rules about two runs."""
        return [rule for rule in self.rules if rule.drop is not None]

    def to_json(self) -> dict[str, Any]:
        """Return the rules as they can be given again."""
        content = self.model_dump(mode="json", exclude={"rules"}, exclude_defaults=True)
        return {"rules": [rule.to_json() for rule in self.rules], **content}


def _percentage(key: str, value: Any) -> Any:
    """Return a percentage from a number or a text such as "80 %". A number up to 1 may be meant as a share: refused."""
    if isinstance(value, str) and value.strip().endswith("%"):
        value = value.strip()[:-1]
        try:
            return float(value)
        except ValueError:
            return value
    if isinstance(value, (int, float)) and 0 < value <= 1:
        raise ConfigError(f"{key} is a percentage; write {100 * value:g} or '{100 * value:g} %' instead of {value:g}")
    return value


def read_gate(rules: Mapping[str, Any] | Gate | Path) -> Gate:
    """Return a gate from its YAML file, or from the same as a mapping."""
    if isinstance(rules, Gate):
        return rules
    content = read_yaml(rules, "rules file", "rules") if isinstance(rules, Path) else dict(rules)
    return validate(Gate, content, lambda place: list((Rule if len(place) > 1 else Gate).model_fields))
