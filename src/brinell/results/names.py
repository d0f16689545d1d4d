"""Names for people."""

from __future__ import annotations

from brinell.geometry import GROUPS
from brinell.lenses import LOOKS
from brinell.perturb import find_operator, find_property, property_facts, property_names

HIGHLIGHTS = {
    "exact": "a spot of light",
    "authors": "a spot of light (the authors' grid)",
    "least": "the faintest spot of light",
}

_METHODS = {"manifool": "ManiFool", "manitest": "Manitest", "random": "random", "grid": "grid"}


def title(name: str) -> str:
    """An operator's or property's name for people; its semantics are told where they are not the usual ones."""
    plain, _, semantics = name.partition(":")
    if plain in LOOKS:
        size = semantics.replace("px", " px") if semantics.endswith("px") else f"P = {semantics}"
        return {"windows": size, "location": f"on black ({size})", "minimal": "minimal images"}[plain]
    if plain == "photograph":
        return "photographed variants"
    if plain == "highlight":
        return HIGHLIGHTS.get(semantics, "a spot of light")
    if plain in GROUPS and semantics in _METHODS:
        return f"{GROUPS[plain].title} ({_METHODS[semantics]})"
    if plain in property_names():
        facts, usual = property_facts(name).title, find_property(plain).semantics
    else:
        operator = find_operator(name)
        facts, semantics, usual = operator.facts.title, operator.semantics, find_operator(plain).semantics
    return facts if semantics in ("", usual) else f"{facts} ({semantics})"
