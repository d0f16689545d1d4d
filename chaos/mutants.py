"""Mutation testing of criteria, statistics and searches: small errors are put into the code, and tests have to fail.

    python -m chaos.mutants [--only NAME] [--each 30] [--jobs 4] [--minutes 60]

Each mutant is one changed operator, comparison or constant. Tests run in a forked process with the mutated module, and stop
at the first failure. Results are kept in chaos/mutants.json, so that a second call goes on from there.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import hashlib
import importlib.abc
import importlib.util
import itertools
import json
import os
import resource
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "chaos" / "mutants.json"
SECONDS = 240  # of computing; a mutant that takes longer loops for ever, which tests would notice
# a module, and the tests that know what it should do, the fastest first
TARGETS: dict[str, tuple[str, ...]] = {
    "brinell.criteria.classification": ("tests/laws/test_criteria.py",),
    "brinell.criteria.criterion": (
        "tests/laws/test_criteria.py",
        "tests/laws/test_detection_criteria.py",
        "tests/test_detector_pictures.py",
    ),
    "brinell.criteria.distance": ("tests/laws/test_detection_criteria.py",),
    "brinell.criteria.verdict": ("tests/laws/test_criteria.py", "tests/laws/test_detection.py"),
    "brinell.criteria.detection": ("tests/laws/test_detection_criteria.py",),
    "brinell.runs.statistics": ("tests/test_statistics.py",),
    "brinell.runs.quantiles": ("tests/test_statistics.py",),
    "brinell.runs.ranking": ("tests/test_statistics.py", "tests/test_reading.py"),
    "brinell.comparison.paired": ("tests/test_paired.py",),
    "brinell.comparison.resampling": ("tests/test_paired.py",),
    "brinell.lenses.knob.search": ("tests/test_knob_lens.py",),
    "brinell.lenses.fragility.minimal": ("tests/test_fragility_lens.py",),
    "brinell.lenses.highlights.faintest": ("tests/test_highlight_lens.py",),
}
_SWAPS: dict[type[Any], type[Any]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.And: ast.Or, ast.Or: ast.And, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


def mutants(source: str) -> Iterator[tuple[str, str]]:
    """Yield each mutant's description and its source."""
    tree = ast.parse(source)
    skipped = _texts(tree)
    for number, node in enumerate(ast.walk(tree)):
        if id(node) in skipped:
            continue
        for label, change in _changes(node):
            mutated = copy.deepcopy(tree)
            target = next(each for index, each in enumerate(ast.walk(mutated)) if index == number)
            change(target)
            yield f"line {node.lineno}: {label}", ast.unparse(ast.fix_missing_locations(mutated))  # type: ignore[attr-defined]


def _texts(tree: ast.AST) -> set[int]:
    """Return the nodes that only people read: annotations, error messages and what raises them, and default texts."""
    found: set[int] = set()
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert):
            parts = [node]
        elif isinstance(node, ast.AnnAssign):
            parts = [node.annotation]
        elif isinstance(node, ast.FunctionDef):
            arguments = [*node.args.args, *node.args.kwonlyargs]
            parts = [node.returns, *(argument.annotation for argument in arguments), *node.decorator_list]
        for part in parts:
            found |= {id(inner) for inner in ast.walk(part)} if part is not None else set()
    return found


def _changes(node: ast.AST) -> Iterator[tuple[str, Any]]:
    if isinstance(node, ast.BinOp | ast.BoolOp | ast.AugAssign) and type(node.op) in _SWAPS:
        other = _SWAPS[type(node.op)]
        yield f"{type(node.op).__name__} → {other.__name__}", lambda found: setattr(found, "op", other())
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPS:
        swapped = _SWAPS[type(node.ops[0])]
        yield f"{type(node.ops[0]).__name__} → {swapped.__name__}", lambda found: found.ops.__setitem__(0, swapped())
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert | ast.USub):
        yield f"without {type(node.op).__name__}", lambda found: setattr(found, "op", ast.UAdd()) or _unwrap(found)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield f"{node.value} → {not node.value}", lambda found: setattr(found, "value", not found.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield f"{node.value} → {node.value + 1}", lambda found: setattr(found, "value", found.value + 1)
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        yield "condition negated", lambda found: setattr(found, "test", ast.UnaryOp(ast.Not(), found.test))


def _unwrap(node: ast.UnaryOp) -> None:
    """Make an operator without effect out of one: `+x` of booleans fails in torch, `(x)` doesn't."""
    operand = node.operand
    node.__class__ = ast.IfExp  # type: ignore[assignment]
    node.test, node.body, node.orelse = ast.Constant(True), operand, operand  # type: ignore[attr-defined]


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module from another source."""

    def __init__(self, name: str, path: Path, source: str) -> None:
        self.name, self.path, self.source = name, path, source

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        """Return this loader for the module."""
        return importlib.util.spec_from_file_location(fullname, self.path, loader=self) if fullname == self.name else None

    def create_module(self, spec: Any) -> ModuleType | None:
        """Use the usual module."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Run the mutant."""
        exec(compile(self.source, str(self.path), "exec"), module.__dict__)


def start(name: str, path: Path, source: str, tests: tuple[str, ...]) -> int:
    """Run tests on a mutant in a forked process, and return its id."""
    child = os.fork()
    if child:
        return child
    code = 1
    with contextlib.suppress(BaseException):
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        sys.meta_path.insert(0, _Finder(name, path, source))
        import pytest

        options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not slow"]
        code = int(pytest.main([*options, *tests]))
    os._exit(code)


def survivors(
    name: str, path: Path, tests: tuple[str, ...], chosen: Iterable[tuple[str, str]], jobs: int
) -> Iterator[tuple[str, bool]]:
    """Yield which mutants survive their tests, several at a time."""
    running: dict[int, str] = {}
    waiting = iter(chosen)
    while True:
        while len(running) < jobs and (one := next(waiting, None)) is not None:
            running[start(name, path, one[1], tests)] = one[0]
        if not running:
            return
        child, status = os.wait()
        yield running.pop(child), os.waitstatus_to_exitcode(status) == 0


def main() -> None:
    """Try the mutants that were not tried yet, for some minutes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="part of a module's name")
    parser.add_argument("--each", type=int, default=10_000, help="most mutants of a module, chosen at random")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time")
    parser.add_argument("--minutes", type=float, default=60)
    given = parser.parse_args()
    os.chdir(ROOT)
    sys.path[:0] = ["src", "tests"]
    for library in ("torch", "numpy", "scipy.stats", "pyarrow.dataset", "duckdb", "PIL.Image", "cv2", "pytest"):
        importlib.import_module(library)  # once, for all forks
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    ends = time.monotonic() + 60 * given.minutes
    for name, tests in TARGETS.items():
        if given.only in name:
            _try_module(name, tests, results, ends=ends, each=given.each, jobs=given.jobs)


def _sample(source: str, most: int) -> list[tuple[str, str]]:
    """Return some mutants of a source by their names; which ones, is always the same."""
    found: dict[str, str] = {}
    for label, mutated in mutants(source):
        number = sum(name.partition(" (")[0] == label for name in found)
        found[f"{label} ({number + 1})" if number else label] = mutated
    order = sorted(found, key=lambda name: hashlib.blake2b(name.encode()).digest())
    return [(name, found[name]) for name in order[:most]]


def _try_module(name: str, tests: tuple[str, ...], results: dict[str, Any], *, ends: float, each: int, jobs: int) -> None:
    path = ROOT / "src" / f"{name.replace('.', '/')}.py"
    source = path.read_text(encoding="utf-8")
    digest = hashlib.blake2b(source.encode(), digest_size=8).hexdigest()
    held = results.get(name, {})
    tried: dict[str, bool] = held.get("tried", {}) if held.get("source") == digest else {}
    if not tried and not next(survivors(name, path, tests, [("none", source)], 1))[1]:
        print(f"{name}: its tests fail without a mutant")
        return
    new = ((key, mutated) for key, mutated in _sample(source, each) if key not in tried)
    in_time = itertools.takewhile(lambda _: time.monotonic() < ends, new)
    for key, lives in survivors(name, path, tests, in_time, jobs):
        tried[key] = lives
        results[name] = {"source": digest, "tried": tried}
        RESULTS.write_text(json.dumps(results, indent=0, sort_keys=True) + "\n", encoding="utf-8")
    alive = [key for key, lives in tried.items() if lives]
    print(f"{name}: {len(tried) - len(alive)} of {len(tried)} killed", *alive, sep="\n  ", flush=True)


if __name__ == "__main__":
    main()
