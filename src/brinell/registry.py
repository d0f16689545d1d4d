"""Named parts: registering is one decorator, a clash raises, a miss suggests the nearest names."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from brinell.errors import UnknownName

T = TypeVar("T")


def nearest(name: str, known: list[str]) -> str:
    """The sentence that helps after a miss: the closest names, or all of them when none is close."""
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"known: {', '.join(known)}" if known else "none is known"


class Registry(Generic[T]):
    """A dictionary of parts of one kind that can only grow."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._parts: dict[str, T] = {}

    def add(self, name: str, part: T) -> T:
        """Put a part under a name that must be free."""
        if name in self._parts:
            raise ValueError(f"{self.kind} {name!r} is registered twice")
        self._parts[name] = part
        return part

    def register(self, name: str) -> Callable[[T], T]:
        """The decorator form of `add`."""
        return lambda part: self.add(name, part)

    def __getitem__(self, name: str) -> T:
        if name not in self._parts:
            raise UnknownName(f"there is no {self.kind} {name!r}; {nearest(name, list(self._parts))}")
        return self._parts[name]

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    def values(self) -> list[T]:
        """All parts in the order they were registered."""
        return list(self._parts.values())
