"""Laws of the package: lenses are named only in their own folders, and kinds of change only where they are defined."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import brinell
from brinell import catalogue
from brinell.lenses.lens import LENSES

ROOT = Path(brinell.__file__).parent
NAMES = [lens.name for lens in LENSES.values() if lens.package.startswith("brinell.lenses.")]
MODULES = [path.relative_to(ROOT) for path in sorted(ROOT.rglob("*.py"))]
PUBLIC = Path("__init__.py")  # exports options of lenses
DEMO = Path("cli/demo.py")
EXPORT = Path("curation/moved.py")  # exports motions, and needs their group


def lines_with(pattern: str, modules: list[Path]) -> list[str]:
    """Return "module:line" where a pattern occurs."""
    return [
        f"{module}:{number}: {line.strip()}"
        for module in modules
        for number, line in enumerate((ROOT / module).read_text(encoding="utf-8").splitlines(), 1)
        if re.search(pattern, line)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_lens_is_named_in_its_own_package_only(name: str) -> None:
    others = [path for path in MODULES if path.parts[:2] != ("lenses", name) and path not in (PUBLIC, DEMO)]
    assert lines_with(rf"""["']{name}["']|\blenses\.{name}\b""", others) == []


def test_kinds_of_change_are_distinguished_in_perturb_and_in_lenses_only() -> None:
    allowed = [path for path in MODULES if path.parts[0] == "perturb" or path.match("lenses/*/lens.py")]
    others = [path for path in MODULES if path not in (*allowed, EXPORT)]
    assert lines_with(r"isinstance\(.*\b(Operator|Property|View|Motion)\b", others) == []


def test_the_catalogue_is_up_to_date() -> None:
    """If this fails, run `python -m brinell.catalogue`."""
    built = catalogue.build()
    stored = catalogue.read()
    for kind, entries in built.items():
        assert [entry for entry in stored[kind] if "plugin" not in entry.tags] == entries, kind
