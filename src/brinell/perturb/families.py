"""Families: operators and properties that belong together, such as those of a benchmark, and are chosen by its name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from brinell.registry import Registry

ALL = "all"  # every part that belongs to no family


class _Facts(Protocol):
    @property
    def family(self) -> str: ...


class _Member(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def id(self) -> str: ...

    @property
    def facts(self) -> _Facts: ...


M = TypeVar("M", bound=_Member)


def expand_names(parts: Registry[M], given: Iterable[str], every: list[str]) -> list[str]:
    """Return names with `all` replaced by `every` name, and a family by the ids of its members."""
    names = []
    for name in given:
        members = [part.id for part in parts.values() if part.facts.family == name]
        names += every if name == ALL else members or [name]
    return names
