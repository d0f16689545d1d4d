"""The catalogue of operators and criteria: what `brinell ls` prints without importing torch.

`python -m brinell.catalogue` writes catalogue.json from the registries; a test fails when it is out of date. Parts of other
packages are not in the file; they are listed from the registries.
"""

from __future__ import annotations

import inspect
import json
from dataclasses import asdict
from importlib import resources
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from brinell.lenses.lens import LENSES, Entry

FILE = "catalogue.json"


Catalogue = dict[str, list[Entry]]  # operators by lens, and criteria


def read() -> Catalogue:
    """Return the catalogue; with other packages' parts, if any are installed."""
    if any(entry_points(group=f"brinell.{kind}") for kind in ("lenses", "operators", "criteria")):
        return build()
    content: dict[str, list[dict[str, Any]]] = json.loads((resources.files("brinell") / FILE).read_text(encoding="utf-8"))
    return {
        kind: [Entry(**entry | {"tags": tuple(entry["tags"])}) for entry in entries] for kind, entries in content.items()
    }


def build() -> Catalogue:
    """Return the catalogue of everything that is registered."""
    from brinell.criteria.criterion import CRITERIA  # imports torch

    catalogue = {lens.name: list(lens.method.catalogue()) for lens in LENSES.values()}
    catalogue["criteria"] = [
        Entry(_signature(name, make), (), inspect.getdoc(make) or "")
        for name, make in zip(CRITERIA, CRITERIA.values(), strict=True)
    ]
    return catalogue


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
