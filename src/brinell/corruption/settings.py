"""The settings of a perturbed copy: each operator at each severity, and the folder that it is written to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from brinell.corruption.options import CorruptOptions
from brinell.errors import ConfigError
from brinell.perturb.families import expand_names
from brinell.perturb.perturbation import Perturbation
from brinell.perturb.property import PROPERTIES
from brinell.registry import VariantId

_PROBED = (224, 224)  # of images that severities are checked with


@dataclass(frozen=True)
class Setting:
    """An operator at one severity, the folder of its copy (empty: the whole dataset is one copy), and its facts."""

    perturbation: Perturbation
    folder: tuple[str, ...]

    @property
    def facts(self) -> dict[str, float | str]:
        """What metadata says about the change of an image."""
        change = self.perturbation.change
        given = self.perturbation.severity
        assert isinstance(given, (int, float))
        return {"operator": change.id, change.parameters[0]: int(given) if change.parameters[0] == "level" else given}


def list_settings(options: CorruptOptions) -> list[Setting]:
    """Return every operator at the levels or severities that apply to it; raise if it has none, or if one is invalid."""
    operators = expand_names(PROPERTIES, options.operators, ["all"])
    perturbations = [one for operator in operators for one in _of_operator(operator, options)]
    nested = len(perturbations) > 1 or options.like is not None
    folders = _name_operators([one.operator for one in perturbations])
    return [
        Setting(one, (folders[one.operator], f"{one.severity:g}") if nested else ()) for one in dict.fromkeys(perturbations)
    ]


def _of_operator(operator: str, options: CorruptOptions) -> list[Perturbation]:
    change = Perturbation(_benchmark_variant(operator, options) or operator, 0, options.seed).change
    by_level = change.parameters[0] == "level"
    given: Sequence[float] = options.levels if by_level else options.severities
    if not given:
        flag, other = ("--level", "--severity") if by_level else ("--severity", "--level")
        kind = "an operator with levels" if by_level else "a property with severities"
        instead = f" instead of {other}" if (options.severities or options.levels) else ""
        raise ConfigError(f"{operator} is {kind}; give {flag}{instead}")
    perturbations = [Perturbation(change.id, severity, options.seed) for severity in given]
    for perturbation in perturbations:
        perturbation.parameters(1, *_PROBED)
    return perturbations


def _benchmark_variant(operator: str, options: CorruptOptions) -> str | None:
    """Return the variant of a name alone that has severities 1 to 5, if these are given or its folders are asked for."""
    if operator in PROPERTIES or not (options.like or max(options.severities, default=0) > 1):
        return None
    variants = (one for one in PROPERTIES.values() if one.name == operator and one.facts.strongest > 1)
    return next((one.id for one in variants), None)


def _name_operators(ids: Sequence[str]) -> dict[str, str]:
    """Return a folder for each operator: its name, with the variant where several variants are applied."""
    names = [VariantId.parse(each).name for each in dict.fromkeys(ids)]
    return {
        each: each.replace(":", "-") if names.count(VariantId.parse(each).name) > 1 else VariantId.parse(each).name
        for each in dict.fromkeys(ids)
    }
