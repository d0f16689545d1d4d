"""Amounts in natural units, for people: "1 line", "4,480 small boxes", "quality 7", "12.6 degrees"."""

from __future__ import annotations

_PREFIXED = ("quality", "×", "sigma")


def format_amount(amount: float, unit: str) -> str:
    """Return an amount with its unit."""
    whole = float(amount).is_integer() or abs(amount) >= 1000
    number = f"{amount:,.0f}" if whole else f"{amount:.3g}"
    if unit in _PREFIXED:
        return f"{unit} {number}"
    return f"{number} {_singular(unit) if abs(amount) == 1 else unit}"


def _singular(unit: str) -> str:
    if unit.startswith("%") or unit.endswith(" rms"):  # "1 % of pixels", "1 px rms"
        return unit
    if unit.endswith("xes"):
        return unit[:-2]
    return unit[:-1] if unit.endswith("s") and len(unit) > 2 else unit
