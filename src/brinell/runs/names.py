"""Names for people."""

from __future__ import annotations

from brinell.lenses.fragility.lens import LOOKS
from brinell.motion.names import GROUP_FACTS
from brinell.perturb.operator import find_operator
from brinell.perturb.property import find_property, property_facts, property_names

HIGHLIGHTS = {
    "exact": "a spot of light",
    "authors": "a spot of light (the authors' grid)",
    "least": "the faintest spot of light",
}

_METHODS = {"manifool": "ManiFool", "manitest": "Manitest", "random": "random", "grid": "grid"}


def title(name: str) -> str:
    """An operator's or property's name for people; its variant are told where they are not the usual ones."""
    plain, _, variant = name.partition(":")
    if plain in LOOKS:
        size = variant.replace("px", " px") if variant.endswith("px") else f"P = {variant}"
        return {"windows": size, "location": f"on black ({size})", "minimal": "minimal images"}[plain]
    if plain == "photograph":
        return "photographed variants"
    if plain == "highlight":
        return HIGHLIGHTS.get(variant, "a spot of light")
    if plain in GROUP_FACTS and variant in _METHODS:
        return f"{GROUP_FACTS[plain].title} ({_METHODS[variant]})"
    if plain in property_names():
        facts, usual = property_facts(name).title, find_property(plain).variant
    else:
        operator = find_operator(name)
        facts, variant, usual = operator.facts.title, operator.variant, find_operator(plain).variant
    return facts if variant in ("", usual) else f"{facts} ({variant})"
