"""Estimates in words: shares and means with their 95 % intervals in brackets, and lists of names."""

from __future__ import annotations

import math
from collections.abc import Sequence

from brinell.runs.statistics import Estimate

FEW = 30  # images; a share of fewer is known to within twenty percentage points or more
NAMED = 3  # names that a sentence lists; it counts the others


def format_share(share: Estimate) -> str:
    """Return a share as "36% [12–68%]", with a decimal where it is small."""
    if math.isnan(share.value):
        return "–"
    known = share.low < share.high  # equal values have no spread, which is not certainty
    digits = 1 if (share.high if known else share.value) < 0.1 else 0
    interval = f" [{100 * share.low:.{digits}f}–{100 * share.high:.{digits}f}%]" if known else ""
    return f"{share.value:.{digits}%}{interval}"


def format_mean(mean: Estimate, spec: str = ".2g") -> str:
    """Return a mean as "1.02 [0.80–1.24]"."""
    if math.isnan(mean.value):
        return "–"
    known = mean.low < mean.high
    value, low, high = (_format_number(each, spec) for each in (mean.value, mean.low, mean.high))
    return f"{value} [{low}–{high}]" if known else value


def _format_number(number: float, spec: str) -> str:
    return f"{number:,.0f}" if abs(number) >= 100 else f"{number:{spec}}"


def join_names(names: Sequence[str], most: int = NAMED) -> str:
    """Return "a, b and c", or "a, b, c and 2 more"."""
    shown = [*names[:most], *([f"{len(names) - most} more"] if len(names) > most else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def list_tied(names: Sequence[str], detail: str) -> str:
    """Return "a (detail)", or "a (detail), tied with b and c" for names that can't be told apart from the first."""
    return f"{names[0]} ({detail})" + (f", tied with {join_names(names[1:])}" if len(names) > 1 else "")


def note_few(count: int, what: str = "image") -> str:
    """Return a sentence about a small sample, after a space; nothing for a larger one."""
    if count >= FEW:
        return ""
    return f" Only one {what} was tested." if count == 1 else f" Only {count} {what}s were tested."
