"""Names for people."""

from __future__ import annotations

from brinell.perturb import PROPERTIES, Operator, Property, find_operator, find_property


def title(name: str) -> str:
    """An operator's or property's name for people; its semantics are told where they are not the usual ones."""
    plain = name.partition(":")[0]
    found: Operator | Property
    usual: Operator | Property
    if name in PROPERTIES:
        found, usual = find_property(name), find_property(plain)
    else:
        found, usual = find_operator(name), find_operator(plain)
    return found.facts.title if found is usual else f"{found.facts.title} ({found.semantics})"
