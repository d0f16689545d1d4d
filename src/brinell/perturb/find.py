"""Finds changes: by name alone, and all that people can turn."""

from __future__ import annotations

from brinell.errors import UnknownName
from brinell.motion.groups import GROUPS
from brinell.perturb.change import Change
from brinell.perturb.highlight import highlight_view
from brinell.perturb.motion import GIVEN, Motion
from brinell.perturb.operator import OPERATORS, find_operator, operator_names
from brinell.perturb.property import PROPERTIES, find_property, property_names
from brinell.registry import VariantId, nearest


def find_change(text: str) -> Change:
    """Return a property of that name where there is one, else an operator; raise with the nearest names."""
    if text in OPERATORS:
        return find_operator(text)
    return find_property_first(text)


def find_property_first(text: str) -> Change:
    """Return a property of that name where there is one, else an operator: a property has all severities of its range."""
    name, _ = VariantId.parse(text)
    if any(found.name == name for found in PROPERTIES.values()) and (text in PROPERTIES or text not in OPERATORS):
        return find_property(text)
    if all(operator.name != name for operator in OPERATORS.values()):
        known = list(dict.fromkeys([*operator_names(), *property_names()]))
        raise UnknownName(f"there is no operator or property {name!r}; {nearest(name, known)}")
    return find_operator(text)


def turnable_changes() -> dict[str, list[Change]]:
    """Return every change that people can turn by hand, by kind: default variants, and groups of motions."""
    return {
        "Degradations": [find_operator(name) for name in operator_names()],
        "Properties": [find_property(name) for name in property_names()],
        "Motions": [Motion(group, GIVEN) for group in GROUPS.values()],
        "Light": [highlight_view("exact")],
    }


def find_turnable(identity: str) -> Change:
    """Return a change by its id: any operator, property, group of motions, or a spot of light."""
    others = [change for kind in ("Motions", "Light") for change in turnable_changes()[kind]]
    return next((change for change in others if change.id == identity), None) or find_change(identity)
