"""Amounts with their units, for people: "1 line", "4,480 boxes", "quality 7", "12.6°", "1.5×"."""

from __future__ import annotations

_PREFIXED = ("quality", "severity", "geodesic score")
_SUFFIXED = {"×": "×", "degrees": "°"}
_SINGULAR = {"axes": "axis", "severities": "severity", "radii": "radius", "passes": "pass", "classes": "class"}


def format_amount(amount: float, unit: str) -> str:
    """Return an amount with its unit. More than 100 % of something reads as a multiple of it: "2.25 × white"."""
    if unit.startswith("% ") and amount > 100:
        return f"{amount / 100:.3g} × {unit[2:]}"
    whole = float(amount).is_integer() or abs(amount) >= 1000
    number = f"{amount:,.0f}" if whole else f"{amount:.3g}"
    if unit in _PREFIXED:
        return f"{unit} {number}"
    if unit == "sigma":
        return f"sigma {number} px"
    if unit in _SUFFIXED:
        return f"{number}{_SUFFIXED[unit]}"
    return f"{number} {_in_singular(unit) if abs(amount) == 1 else unit}".strip()


def format_rate(per_second: float, unit: str) -> str:
    """Return a rate, per minute if it is less than one per second."""
    return f"{per_second:,.0f} {unit}/s" if per_second >= 1 else f"{60 * per_second:,.0f} {unit}/min"


def format_clock(seconds: float) -> str:
    """Return a duration as on a clock: "1:05", "2:00:00"."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def singular(noun: str) -> str:
    """Return a plural noun in the singular: "boxes" is "box", "axes" is "axis"."""
    if noun in _SINGULAR:
        return _SINGULAR[noun]
    if noun.endswith(("xes", "ches", "shes", "sses")):
        return noun[:-2]
    return noun[:-1] if noun.endswith("s") and not noun.endswith("ss") and len(noun) > 2 else noun


def _in_singular(unit: str) -> str:
    """Return a unit with its noun, the first plural word, in the singular: "pass of a 5×5 blur", "grey level at most"."""
    if unit.startswith("%"):
        return unit
    words = unit.split()
    for index, word in enumerate(words):
        if word != "rms" and singular(word) != word:
            return " ".join([*words[:index], singular(word), *words[index + 1 :]])
    return unit
