"""Finds a change by its name alone: an operator or a property."""

from __future__ import annotations

from brinell.perturb.change import Change
from brinell.perturb.operator import OPERATORS, find_operator
from brinell.perturb.property import PROPERTIES, find_property
from brinell.registry import VariantId


def find_change(text: str) -> Change:
    """Return a property of that name where there is one, else an operator; raise with the nearest names."""
    properties = {found.name for found in PROPERTIES.values()}
    if VariantId.parse(text).name in properties and text not in OPERATORS:
        return find_property(text)
    return find_operator(text)
