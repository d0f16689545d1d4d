"""Laws of the package: where lenses and kinds of change are named, and how large files and functions are."""

from __future__ import annotations

import ast
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


def test_files_and_functions_are_short() -> None:
    """Few files have over 300 lines, no function over 60, and few functions more than six parameters."""
    texts = {path: (ROOT / path).read_text(encoding="utf-8") for path in MODULES}
    functions = [
        (path, node)
        for path, text in texts.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    long = [f"{path}: {node.name}" for path, node in functions if (node.end_lineno or 0) - node.lineno >= 60]
    assert long == []
    assert sum(text.count("\n") > 300 for text in texts.values()) <= 0.03 * len(texts)
    assert sum(_count_parameters(node.args) > 6 for _, node in functions) <= 0.02 * len(functions)


def _count_parameters(arguments: ast.arguments) -> int:
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def test_the_catalogue_is_up_to_date() -> None:
    """If this fails, run `python -m brinell.catalogue`."""
    built = catalogue.build()
    stored = catalogue.read()
    for kind, entries in built.items():
        assert [entry for entry in stored[kind] if "plugin" not in entry.tags] == entries, kind
