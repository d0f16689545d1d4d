"""What a lens is: one way of testing a model, in a package of its own. Importing this needs neither torch nor a lens.

A lens's package holds `LENS = Lens(..., package=__name__)` and these modules, each loaded when it is needed:

options.py    `OPTIONS`: its options, a frozen pydantic model (no torch)
lens.py       `METHOD`: the generator that yields trials and returns columns (torch; no files, no reports)
findings.py   `READER`: its columns, and what its rows mean: SQL, intervals, measures, failures, exhibits (no torch)
show.py       `SHOW`: its table, charts and report section (rich, altair, jinja; no torch)
shape.py      `SHAPE`: what its findings look like as JSON, for the schemas of brinell's own lenses

Lenses of other packages register through the entry point group `brinell.lenses` and are treated like the built-in ones.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from brinell.registry import Registry

if TYPE_CHECKING:
    from brinell.config.lens import LensOptions
    from brinell.lenses.method import Method
    from brinell.lenses.reader import Reader
    from brinell.report.show import Show


@dataclass(frozen=True)
class Analysis:
    """Findings and how they are shown. `question` is what they answer; `summary` says what is measured."""

    name: str
    question: str
    summary: str
    package: str

    @property
    def reader(self) -> Reader:
        """What its rows mean (findings.py)."""
        reader: Reader = self._load("findings", "READER")
        return reader

    @property
    def show(self) -> Show:
        """How its findings are shown (show.py)."""
        show: Show = self._load("show", "SHOW")
        return show

    @property
    def shape(self) -> Any:
        """What its findings look like as JSON (shape.py; see `runs.shapes`)."""
        return self._load("shape", "SHAPE")

    def _load(self, module: str, attribute: str) -> Any:
        return getattr(importlib.import_module(f"{self.package}.{module}"), attribute)


@dataclass(frozen=True)
class Lens(Analysis):
    """An analysis that measures. `source` is the paper that it comes from.

    Lenses are listed by their `order`; `commands` are further commands of the command line, by their names, as
    "module:function".
    """

    source: str = ""
    order: int = 100
    commands: tuple[tuple[str, str], ...] = ()

    @property
    def options(self) -> type[LensOptions]:
        """Its options (options.py)."""
        options: type[LensOptions] = self._load("options", "OPTIONS")
        return options

    @property
    def method(self) -> Method[Any]:
        """How it measures (lens.py)."""
        method: Method[Any] = self._load("lens", "METHOD")
        return method


def _built_in(registry: Registry[Lens]) -> None:
    """Register the packages in this folder."""
    package = importlib.import_module("brinell.lenses")
    found = [module.name for module in pkgutil.iter_modules(package.__path__) if module.ispkg]
    lenses = [importlib.import_module(f"brinell.lenses.{name}").LENS for name in found]
    for lens in sorted(lenses, key=lambda lens: lens.order):
        registry.add(lens.name, lens)


LENSES: Registry[Lens] = Registry("lens", group="brinell.lenses", built_in=_built_in)


def default_lens() -> str:
    """Return the name of the lens that runs if none is named: the first one."""
    return next(iter(LENSES))
