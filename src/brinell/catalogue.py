"""The catalogue of operators and criteria: what `brinell ls` prints without importing torch.

`python -m brinell.catalogue` writes catalogue.json from the registries; a test fails when it is out of date. Parts of other
packages are not in the file; they are listed by their entry points.
"""

from __future__ import annotations

import inspect
import json
from dataclasses import asdict
from importlib import resources
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from brinell.lenses.entry import Entry
from brinell.lenses.lens import LENSES

FILE = "catalogue.json"
OPERATORS, CRITERIA = "operators", "criteria"  # kinds besides the lenses


Catalogue = dict[str, list[Entry]]  # operators by lens, and criteria


def read() -> Catalogue:
    """Return the catalogue: built-in parts from the file, parts of other packages by the names of their entry points."""
    content: dict[str, list[dict[str, Any]]] = json.loads((resources.files("brinell") / FILE).read_text(encoding="utf-8"))
    catalogue = {kind: [_entry(record) for record in records] for kind, records in content.items()}
    for lens in LENSES.values():
        catalogue.setdefault(lens.name, [Entry(lens.name, ("plugin",), lens.summary)])
    for kind in (OPERATORS, CRITERIA):
        for point in entry_points(group=f"brinell.{kind}"):
            package = point.dist.name if point.dist is not None else point.value
            catalogue.setdefault(kind, []).append(Entry(point.name, ("plugin",), f"From the package {package}."))
    return catalogue


def _entry(record: dict[str, Any]) -> Entry:
    return Entry(record["name"], tuple(record["tags"]), record["description"])


def build() -> Catalogue:
    """Return the catalogue of brinell's own parts, from the registries."""
    from brinell.criteria.criterion import CRITERIA as REGISTERED  # imports torch

    catalogue = {lens.name: list(lens.method.catalogue()) for lens in LENSES.values() if _built_in(lens.package)}
    catalogue[CRITERIA] = [
        Entry(_signature(name, make), (), inspect.getdoc(make) or "")
        for name, make in zip(REGISTERED, REGISTERED.values(), strict=True)
        if _built_in(make.__module__)
    ]
    return catalogue


def _built_in(module: str) -> bool:
    return module.startswith("brinell.")


def _signature(name: str, make: Any) -> str:
    parameters = ", ".join(inspect.signature(make).parameters)
    return f"{name}({parameters})" if parameters else name


def write() -> None:
    """Write catalogue.json next to this module."""
    content = {kind: [asdict(entry) for entry in entries] for kind, entries in build().items()}
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    (Path(__file__).parent / FILE).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
