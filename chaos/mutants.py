"""Mutation testing of criteria, statistics and searches: small errors are put into the code, and tests have to fail.

    python -m chaos.mutants [--only NAME] [--each 30] [--minutes 60]

Each mutant is one changed operator, comparison or constant; annotations, decorators and what raises errors stay as they
are. Tests run in a forked process with the mutated module, and stop at the first failure. Results are kept in
chaos/mutants.json, so that a second call goes on from there, and tries survivors again.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import importlib.abc
import importlib.util
import itertools
import json
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from types import CodeType, ModuleType
from typing import IO, Any, NamedTuple

from chaos.patching import changed_functions, patch

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "chaos" / "mutants.json"
TIMES, MORE = 3, 5  # a mutant that computes for longer than this many times its tests, and some seconds, loops for ever
# a module, and the tests that know what it should do, the fastest first
TARGETS: dict[str, tuple[str, ...]] = {
    "brinell.criteria.classification": ("tests/laws/test_criteria_boundaries.py", "tests/laws/test_criteria.py"),
    "brinell.criteria.criterion": ("tests/laws/test_criteria_boundaries.py", "tests/laws/test_criteria.py"),
    "brinell.criteria.distance": ("tests/laws/test_criteria_boundaries.py", "tests/laws/test_detection_criteria.py"),
    "brinell.criteria.verdict": ("tests/laws/test_criteria_boundaries.py", "tests/laws/test_criteria.py"),
    "brinell.criteria.detection": ("tests/laws/test_criteria_boundaries.py", "tests/laws/test_detection_criteria.py"),
    "brinell.runs.statistics": (
        "tests/test_reference_intervals.py",
        "tests/test_reference_values.py",
        "tests/test_statistics.py",
    ),
    "brinell.runs.quantiles": ("tests/test_reference_values.py", "tests/test_statistics.py"),
    "brinell.runs.ranking": ("tests/test_reference_values.py", "tests/test_statistics.py"),
    "brinell.comparison.paired": ("tests/test_paired_choice.py", "tests/test_reference_values.py", "tests/test_paired.py"),
    "brinell.comparison.resampling": ("tests/test_reference_values.py", "tests/test_paired.py"),
    "brinell.lenses.knob.search": ("tests/laws/test_searches.py",),
    "brinell.lenses.fragility.minimal": ("tests/laws/test_local_searches.py",),
    "brinell.lenses.highlights.faintest": ("tests/laws/test_local_searches.py",),
    "brinell.lenses.geometry.manifool": ("tests/laws/test_motion_searches.py",),
    "brinell.lenses.geometry.manitest": ("tests/laws/test_motion_searches.py",),
}
OPTIONS = ("-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not slow")
_SWAPS: dict[type[Any], type[Any]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.And: ast.Or, ast.Or: ast.And, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip


def mutants(source: str) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield each mutant's name, and a function that returns its source."""
    tree = ast.parse(source)
    skipped = _texts(tree)
    seen: Counter[str] = Counter()
    for node in ast.walk(tree):
        for label, change in () if id(node) in skipped else _changes(node):
            name = f"line {node.lineno}: {label}"  # type: ignore[attr-defined]
            seen[name] += 1
            yield f"{name} ({seen[name]})" if seen[name] > 1 else name, partial(_mutate, tree, node, change)


def _mutate(tree: ast.AST, node: ast.AST, change: Callable[[Any], Any]) -> str:
    """Return the source of a tree with one node changed, and change it back."""
    kind, before = (
        node.__class__,
        {name: value[:] if isinstance(value, list) else value for name, value in vars(node).items()},
    )
    change(node)
    try:
        return ast.unparse(ast.fix_missing_locations(tree))
    finally:
        node.__class__ = kind  # type: ignore[assignment]
        vars(node).clear()
        vars(node).update(before)


def _texts(tree: ast.AST) -> set[int]:
    """Return the nodes that only people read: annotations, error messages and what raises them, and default texts."""
    found: set[int] = set()
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.Assert):
            parts = [node]
        elif isinstance(node, ast.AnnAssign):
            parts = [node.annotation]
        elif isinstance(node, ast.ClassDef):
            parts = [*node.decorator_list]
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            parts = [node]
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


class Module(NamedTuple):
    """A module to mutate, and the tests that know what it should do."""

    name: str
    path: Path
    tests: tuple[str, ...]


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


def _run_tests(tests: tuple[str, ...], seconds: int | None) -> int:
    """Run tests in this process, which is a fork, quietly; stop at the first failure."""
    if seconds is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    import pytest

    return int(pytest.main([*OPTIONS, *tests]))


def _in_fork(work: Callable[[], int]) -> tuple[bool, float]:
    """Do work in a forked process; return whether it returned 0, and its seconds of computing."""
    child = os.fork()
    if not child:
        code = 1
        with contextlib.suppress(BaseException):
            code = work()
        os._exit(code)
    _, status, used = os.wait4(child, 0)
    return status == 0, used.ru_utime + used.ru_stime


def survivors(module: Module, chosen: Iterable[tuple[str, str]], seconds: int | None) -> Iterator[tuple[str, bool, float]]:
    """Yield which mutants survive the tests, and their seconds of computing; each imports the module and the tests anew."""

    def work(mutated: str) -> int:
        sys.meta_path.insert(0, _Finder(module.name, module.path, mutated))
        return _run_tests(module.tests, seconds)

    for label, mutated in chosen:
        yield label, *_in_fork(lambda mutated=mutated: work(mutated))  # type: ignore[misc]


def patched_survivors(module: Module, chosen: list[tuple[str, dict[str, CodeType]]]) -> Iterator[tuple[str, bool]]:
    """Yield which mutants of functions survive. A fork imports the module and the tests, and is forked for each mutant."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException), os.fdopen(writing, "w") as answers:
            _answer_all(module, chosen, answers)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answers:
        for (label, _), line in zip(chosen, answers, strict=False):
            yield label, line.strip() == "lives"
    os.waitpid(child, 0)


def _answer_all(module: Module, chosen: list[tuple[str, dict[str, CodeType]]], answers: IO[str]) -> None:
    import pytest

    with Path(os.devnull).open("w") as quiet, contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
        pytest.main([*OPTIONS, "--collect-only", *module.tests])
    seconds = TIMES * _in_fork(lambda: _run_tests(module.tests, None))[1] + MORE

    def work(codes: dict[str, CodeType]) -> int:
        return _run_tests(module.tests, int(seconds)) if patch(module.name, codes) else 1

    for _, codes in chosen:
        lives, _ = _in_fork(lambda codes=codes: work(codes))  # type: ignore[misc]
        print("lives" if lives else "killed", file=answers, flush=True)


def main() -> None:
    """Try the mutants that were not tried yet, for some minutes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="part of a module's name")
    parser.add_argument("--each", type=int, default=10_000, help="most mutants of a module, chosen at random")
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
            _try_module(name, tests, results, ends=ends, each=given.each)


def sample(source: str, most: int) -> list[tuple[str, Callable[[], str]]]:
    """Return some mutants of a source; which ones, is always the same."""
    found = dict(mutants(source))
    order = sorted(found, key=lambda name: hashlib.blake2b(name.encode()).digest())
    return [(name, found[name]) for name in order[:most]]


def _try_module(name: str, tests: tuple[str, ...], results: dict[str, Any], *, ends: float, each: int) -> None:
    module = Module(name, ROOT / "src" / f"{name.replace('.', '/')}.py", tests)
    source = module.path.read_text(encoding="utf-8")
    digest = hashlib.blake2b(source.encode(), digest_size=8).hexdigest()
    held = results.get(name, {})
    names = {key for key, _ in mutants(source)}
    stored: dict[str, bool] = held.get("tried", {}) if held.get("source") == digest else {}
    tried = {key: lives for key, lives in stored.items() if key in names}
    _, passes, seconds = next(survivors(module, [("none", source)], None))
    if not passes:
        print(f"{name}: its tests fail without a mutant")
        return
    chosen = [(key, make) for key, make in sample(source, each) if tried.get(key, True)]  # later tests may kill survivors
    new = [(key, make()) for key, make in chosen]
    plain = ast.unparse(ast.parse(source))
    patches = {key: changed_functions(plain, mutated) for key, mutated in new}
    quick = [(key, codes) for key, _ in new if (codes := patches[key]) is not None]
    slow = [(key, mutated) for key, mutated in new if patches[key] is None]
    again = ((key, lives) for key, lives, _ in survivors(module, slow, int(TIMES * seconds + MORE)))
    for key, lives in itertools.chain(patched_survivors(module, quick), again):
        tried[key] = lives
        results[name] = {"source": digest, "mutants": len(names), "tried": tried}
        RESULTS.write_text(json.dumps(results, indent=0, sort_keys=True) + "\n", encoding="utf-8")
        if time.monotonic() > ends:
            break
    alive = [key for key, lives in tried.items() if lives]
    print(f"{name}: {len(tried) - len(alive)} of {len(tried)} killed", *alive, sep="\n  ", flush=True)


if __name__ == "__main__":
    main()
