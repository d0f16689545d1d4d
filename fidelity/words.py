"""Numbers and lists as the page writes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from brinell.perturb.find import find_change
from fidelity.compare import NEVER


def title(operator: str) -> str:
    """Return an operator's or property's name for people."""
    return find_change(operator).title


def told_level(value: Any) -> str:
    """A first level, or that there is none."""
    return "never" if int(value) == NEVER else str(int(value))


def signed(value: float, digits: int = 2) -> str:
    """A difference with its sign."""
    return "0" if round(value, digits) == 0 else f"{value:+.{digits}f}".replace("-", "−")


def grid(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table, its first column to the left."""
    ruler = ["---", *("---:" for _ in header[1:])]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, ruler, *lines))


def listed(names: Iterable[str]) -> str:
    """Names with commas and an "and"."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last
