"""Put a mutant into a module that is already imported: functions get the mutant's code, and nothing is imported again."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any


def changed_functions(source: str, mutated: str) -> dict[str, CodeType] | None:
    """Return the code of the functions that a mutant changes, by qualified name; None if it changes anything else."""
    before, after = (dict(_codes(compile(text, "mutant", "exec"))) for text in (source, mutated))
    changed = {name: code for name, code in after.items() if _own(code) != _own(before[name])}
    inner = {name for name in changed if "<locals>" in name or "<lambda>" in name}
    outer = {name.partition(".<locals>")[0] for name in changed}
    if not all(
        after[name].co_flags & inspect.CO_NEWLOCALS and after[name].co_flags & inspect.CO_OPTIMIZED for name in outer
    ):
        return None  # the module itself, or the body of a class
    return {name: after[name] for name in outer | (set(changed) - inner)}


def patch(module: str, codes: dict[str, CodeType]) -> bool:
    """Replace the code of a module's functions, and return whether all of them were found."""
    found = {function.__code__.co_qualname: function for function in _functions(vars(sys.modules[module]), module)}
    if not codes.keys() <= found.keys():
        return False
    for name, code in codes.items():
        found[name].__code__ = code
    return True


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    """Yield a code and all that it contains; several lambdas of one function count as one, with the last one's code."""
    yield code.co_qualname, code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _codes(inner)


def _own(code: CodeType) -> Any:
    """Return a code without places in the text; functions with others inside are compared with these."""
    module_or_class = not code.co_flags & inspect.CO_OPTIMIZED
    kept = [_own(each) if isinstance(each, CodeType) else each for each in code.co_consts]
    if module_or_class:
        kept = [each for each in kept if not isinstance(each, tuple) or not each or each[0] != "code"]
    return "code", code.co_code, tuple(map(_typed, kept)), code.co_names, code.co_varnames, code.co_freevars


def _typed(value: Any) -> Any:
    """Return a constant together with its type: 1, 1.0 and True are equal."""
    return (type(value).__name__, repr(value)) if isinstance(value, int | float | bool | complex) else value


def _functions(names: dict[str, Any], module: str) -> Iterator[FunctionType]:
    for value in list(names.values()):
        if isinstance(value, type):
            if value.__module__ == module:
                yield from _functions(dict(vars(value)), module)
            continue
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        function = inspect.unwrap(function) if callable(function) else function
        if isinstance(function, FunctionType) and function.__module__ == module:
            yield function
