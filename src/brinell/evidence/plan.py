"""A test plan: what a model must meet, written down before it is measured."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from brinell.comparison.rules import Gate, Require, Rule, read_gate
from brinell.errors import ConfigError
from brinell.hashing import file_sha256
from brinell.runs.run import Run
from brinell.validation import read_yaml, validate


class Plan(BaseModel):
    """A plan: its requirements are rules as of `brinell gate`, each with a name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str = Field(min_length=1)
    responsible: str = Field(min_length=1)
    operating_domain: str = Field(min_length=1)
    data: str = ""
    not_tested: tuple[str, ...] = ()
    require: Require = "interval"
    requirements: tuple[Rule, ...] = Field(min_length=1)

    @property
    def gate(self) -> Gate:
        """The requirements as rules for one run."""
        rules = [rule.model_dump(exclude_defaults=True) for rule in self.requirements]
        return read_gate({"require": self.require, "rules": rules})


def read_plan(file: Path) -> Plan:
    """Read a plan; names of requirements must differ, so that a record can refer to them."""
    content = read_yaml(file, "plan", "title, responsible, operating_domain and requirements")
    plan = validate(Plan, content, lambda place: list((Rule if len(place) > 1 else Plan).model_fields))
    names = [rule.name for rule in plan.requirements]
    if None in names:
        missing = plan.requirements[names.index(None)]
        raise ConfigError(f"{file}: the requirement about {missing.measure} has no name; give each one a name, such as R1")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"{file}: two requirements are named {twice!r}")
    return plan


def require_same_plan(run: Run, file: Path) -> str:
    """Return the hash of a plan; raise if it is not the plan that the run began with."""
    digest, stored = file_sha256(file), run.manifest.get("plan")
    if stored is None:
        raise ConfigError(
            f"{run.folder} was measured without a plan; write the plan first, and measure with brinell run --plan {file}"
        )
    if stored["sha256"] != digest:
        raise ConfigError(
            f"{file} is not the plan that the run in {run.folder} began with; restore it, or measure in another folder"
        )
    return digest
