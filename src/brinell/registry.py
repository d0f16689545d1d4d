"""Registries of named parts, built-in or from installed packages, and ids of the form `name:variant`.

Registering is one decorator; a clash raises, and a miss suggests the nearest names. Another package adds parts through an
entry point of the registry's group, in its pyproject.toml:

[project.entry-points."brinell.operators"]
sparkle = "my_package.sparkle"          # a module whose decorators register parts
glare = "my_package.glare:operator"     # or the part itself
"""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from brinell.errors import PluginError, UnknownName

T = TypeVar("T")

DEFAULT_VARIANT = "standard"  # of what is given by name alone; parts without it have their first


def nearest(name: str, known: list[str]) -> str:
    """Return the hint that follows a miss: the closest names, or all names if none is close."""
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"known: {', '.join(known)}" if known else "none is known"


def load_reference(reference: str) -> Any:
    """Import and return what a reference of the form "module:attribute" points to."""
    module, _, attribute = reference.partition(":")
    return getattr(import_module(module), attribute)


class Registry(Generic[T]):
    """A dictionary of parts of one kind, to which parts can only be added.

    On the first read `built_in` registers brinell's own parts, if importing doesn't register them, and the parts of other
    packages are loaded from the entry points of `group`.
    """

    def __init__(
        self, kind: str, *, group: str | None = None, built_in: Callable[[Registry[T]], None] | None = None
    ) -> None:
        self.kind, self.group = kind, group
        self._parts: dict[str, T] = {}
        self._built_in = built_in
        self._pending: list[EntryPoint] | None = None if group else []  # None: not looked for yet
        self._loading = False
        self._lock = threading.RLock()

    def add(self, name: str, part: T) -> T:
        """Add a part under a name, and raise if the name is taken."""
        if name in self._parts:
            raise ValueError(f"{self.kind} {name!r} is registered twice")
        self._parts[name] = part
        return part

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that adds a part under a name."""
        return lambda part: self.add(name, part)

    def __getitem__(self, name: str) -> T:
        parts = self._read()
        if name not in parts:
            raise UnknownName(f"there is no {self.kind} {name!r}; {nearest(name, list(parts))}")
        return parts[name]

    def __contains__(self, name: object) -> bool:
        return name in self._read()

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def values(self) -> list[T]:
        """Return all parts in the order in which they were registered."""
        return list(self._read().values())

    def _read(self) -> dict[str, T]:
        """Return the parts, after loading those that are not loaded yet."""
        if self._built_in is not None or self._pending != []:
            self._load_all()
        return self._parts

    def _load_all(self) -> None:
        with self._lock:
            if self._loading:  # a part that reads the registry while it is loaded sees what is there so far
                return
            self._loading = True
            try:
                if self._built_in is not None:
                    self._built_in(self)
                    self._built_in = None
                if self._pending is None:
                    assert self.group is not None
                    found = entry_points(group=self.group)
                    self._pending = sorted(found, key=lambda point: (_package(point), point.name))
                while self._pending:  # one that fails stays pending, so that every read reports it
                    self._load_plugin(self._pending[0])
                    del self._pending[0]
            finally:
                self._loading = False

    def _load_plugin(self, point: EntryPoint) -> None:
        try:
            part = point.load()
            if not isinstance(part, ModuleType):
                self.add(getattr(part, "id", point.name), part)
        except Exception as error:  # another package's code may raise anything
            package = _package(point)
            raise PluginError(
                f"the {self.kind} plugin {point.name!r} of the package {package} ({point.value}) can't be loaded: "
                f"{type(error).__name__}: {error}; update the package, or remove it: pip uninstall {package}"
            ) from error


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.module.partition(".")[0]


class VariantId(NamedTuple):
    """The id of a variant, written `name:variant`, or `name` alone."""

    name: str
    variant: str = ""

    @classmethod
    def parse(cls, text: str) -> VariantId:
        """Split `name:variant` or `name`."""
        name, _, variant = text.partition(":")
        return cls(name, variant)

    def __str__(self) -> str:
        return f"{self.name}:{self.variant}" if self.variant else self.name


class Variant(Protocol):
    """A part that comes in variants, each registered under `name:variant`."""

    @property
    def name(self) -> str:
        """The name that all its variants share."""
        ...

    @property
    def variant(self) -> str:
        """Which variant it is."""
        ...

    @property
    def id(self) -> str:
        """The full id, `name:variant`."""
        ...


R = TypeVar("R", bound=Variant)


def find_variant(parts: Registry[R], text: str, preferred: str) -> R:
    """Return a part by `name:variant`, or by `name` in its preferred variant (or its first, if it doesn't have that)."""
    name, variant = VariantId.parse(text)
    variants = {part.variant: part for part in parts.values() if part.name == name}
    if not variants:
        known = list(dict.fromkeys(part.name for part in parts.values()))
        raise UnknownName(f"there is no {parts.kind} {name!r}; {nearest(name, known)}")
    if variant and variant not in variants:
        raise UnknownName(f"{parts.kind} {name!r} has no variant {variant!r}; it has {', '.join(variants)}")
    return variants.get(variant or preferred, next(iter(variants.values())))


def list_variants(parts: Registry[R]) -> list[R]:
    """Return all parts by name, the default variant of each name first."""
    every = parts.values()
    names = dict.fromkeys(part.name for part in every)
    defaults = {name: find_variant(parts, name, DEFAULT_VARIANT) for name in names}
    return [
        part
        for name in names
        for part in [defaults[name], *(other for other in every if other.name == name and other is not defaults[name])]
    ]


def select_variants(parts: Registry[R], names: Iterable[str], preferred: str) -> list[R]:
    """Return the parts of these names, each once, in the preferred variant. Raise if no part has that variant."""
    known = list(dict.fromkeys(part.variant for part in parts.values()))
    if preferred not in known:
        raise UnknownName(f"no {parts.kind} has the variant {preferred!r}; {nearest(preferred, known)}")
    return list({part.id: part for part in (find_variant(parts, name, preferred) for name in names)}.values())
