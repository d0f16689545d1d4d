"""Format numbers, lists and tables for the pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from brinell.perturb.find import find_change
from fidelity.compare import NEVER


def title(operator: str) -> str:
    """Return an operator's or property's name for people, with its variant unless it is the one of the papers' figures."""
    return find_change(operator).title.removesuffix(" (published)").removesuffix(" (dsn2020)")


def format_level(value: Any) -> str:
    """Return a first level, or "never"."""
    return "never" if int(value) == NEVER else str(int(value))


def signed(value: float, digits: int = 2) -> str:
    """Return a difference with its sign."""
    return "0" if round(value, digits) == 0 else f"{value:+.{digits}f}".replace("-", "−")


def grid(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table whose first column is left-aligned."""
    ruler = ["---", *("---:" for _ in header[1:])]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, ruler, *lines))


def listed(names: Iterable[str]) -> str:
    """Join names by commas and a final "and"."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
