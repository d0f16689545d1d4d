"""An entry of `brinell ls`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """An entry of `brinell ls`: an operator of a lens, or a criterion, with its tags and what it does."""

    name: str
    tags: tuple[str, ...]
    description: str
