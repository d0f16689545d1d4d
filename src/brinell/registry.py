"""Named parts: registering is one decorator, a clash raises, a miss suggests the nearest names."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

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

    def __init__(self, kind: str, *, built_in: Callable[[Registry[T]], None] | None = None) -> None:
        self.kind = kind
        self._parts: dict[str, T] = {}
        self._built_in = built_in  # registers the parts of this package, on the first read

    def _load(self) -> dict[str, T]:
        """Return the parts, after loading the built-in ones."""
        if self._built_in is not None:
            register, self._built_in = self._built_in, None
            register(self)
        return self._parts

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
        parts = self._load()
        if name not in parts:
            raise UnknownName(f"there is no {self.kind} {name!r}; {nearest(name, list(parts))}")
        return parts[name]

    def __contains__(self, name: object) -> bool:
        return name in self._load()

    def __iter__(self) -> Iterator[str]:
        return iter(self._load())

    def __len__(self) -> int:
        return len(self._load())

    def values(self) -> list[T]:
        """All parts in the order they were registered."""
        return list(self._load().values())


class Variant(Protocol):
    """A part that is there once for each way to read its source, under `name:variant`."""

    @property
    def name(self) -> str:
        """What all its readings are called."""
        ...

    @property
    def variant(self) -> str:
        """Which reading it is."""
        ...

    @property
    def id(self) -> str:
        """The full name."""
        ...


R = TypeVar("R", bound=Variant)


def find_variant(parts: Registry[R], text: str, preferred: str) -> R:
    """A part by `name` or `name:variant`; a name alone takes the preferred variant where it has them."""
    name, _, asked = text.partition(":")
    readings = {part.variant: part for part in parts.values() if part.name == name}
    if not readings:
        known = list(dict.fromkeys(part.name for part in parts.values()))
        raise UnknownName(f"there is no {parts.kind} {name!r}; {nearest(name, known)}")
    if asked and asked not in readings:
        raise UnknownName(f"{parts.kind} {name!r} has no variant {asked!r}; it has {', '.join(readings)}")
    return readings.get(asked or preferred, next(iter(readings.values())))


def select_variants(parts: Registry[R], names: Iterable[str], preferred: str) -> list[R]:
    """The parts of these names, each once, in the preferred variant, which some part must have."""
    known = list(dict.fromkeys(part.variant for part in parts.values()))
    if preferred not in known:
        raise UnknownName(f"no {parts.kind} has the variant {preferred!r}; {nearest(preferred, known)}")
    return list({part.id: part for part in (find_variant(parts, name, preferred) for name in names)}.values())
