"""The Python code behind a torch module: the user's own source files, which decide what its weights compute."""

from __future__ import annotations

import ast
import hashlib
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FunctionType, ModuleType
from typing import NamedTuple

from torch import nn

_INSTALLED = tuple({str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "purelib", "platlib")})
_OTHERS = {"brinell", "__main__"}  # packages that are not the model's


class _Source(NamedTuple):
    """A module's source file. Modules are told by their files, since `sys.modules` depends on what else was loaded."""

    name: str
    file: Path
    package: str  # what relative imports start from


def code_digest(built: nn.Module, *, factory: ModuleType | None = None) -> str | None:
    """Return 16 hex digits of a hash of the user's code behind a module; None if all of it is in installed packages.

    That is the code of its layers' classes, of the module with the `factory` that built it, and of all that these import,
    inside of functions too. What else the process has loaded doesn't matter.
    """
    package = None if factory is None else factory.__name__.partition(".")[0]
    waiting = [source for layer in built.modules() for source in _sources_of(type(layer))]
    if factory is not None and factory.__file__:
        waiting.append(_Source(factory.__name__, Path(factory.__file__), factory.__package__ or ""))
    files: dict[Path, bytes] = {}
    while waiting:
        source = waiting.pop()
        file = source.file.resolve()
        if file in files or not _is_own(source, file, package):
            continue
        files[file] = _content(file)
        waiting += _imported(source, files[file])
    if not files:
        return None
    digest = hashlib.blake2b(digest_size=8)
    for name, content in sorted((file.name, content) for file, content in files.items()):
        digest.update(name.encode() + hashlib.blake2b(content).digest())
    return digest.hexdigest()


def _sources_of(layer: type) -> Iterator[_Source]:
    """Yield the source files of a class and its bases, by their methods: their modules may be in no list of modules."""
    for base in layer.__mro__:
        for method in vars(base).values():
            if isinstance(method, FunctionType):
                package = method.__globals__.get("__package__") or ""
                yield _Source(base.__module__, Path(method.__code__.co_filename), package)
                break


def _imported(source: _Source, content: bytes) -> Iterator[_Source]:
    """Yield the source files of what a file imports anywhere, also where only a function does."""
    with suppress(SyntaxError, ValueError):
        for node in ast.walk(ast.parse(content)):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield from _find(alias.name)
            elif isinstance(node, ast.ImportFrom):
                parents = source.package.split(".")
                above = parents[: len(parents) - node.level + 1] if node.level else []
                name = ".".join([*above, *([node.module] if node.module else [])])
                for alias in node.names:
                    yield from _find(f"{name}.{alias.name}")


def _find(name: str) -> Iterator[_Source]:
    """Yield the source files that importing a dotted name runs, from the outermost package on; imports none of them."""
    places, found = None, ""
    for part in name.split("."):
        found = f"{found}.{part}".lstrip(".")
        spec = _spec(found, places)
        if spec is None:
            return
        places = None if spec.submodule_search_locations is None else list(spec.submodule_search_locations)
        if spec.origin is not None:
            yield _Source(found, Path(spec.origin), found if places is not None else found.rpartition(".")[0])
        if places is None:
            return


def _spec(name: str, places: list[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        with suppress(Exception):  # another package's finder may raise anything
            if (spec := finder.find_spec(name, places)) is not None:
                return spec
    return None


def _is_own(source: _Source, file: Path, package: str | None) -> bool:
    """Whether a file is the user's: Python outside of what is installed, or in the factory's package."""
    top = source.name.partition(".")[0]
    if file.suffix != ".py" or top in _OTHERS or not file.is_file():
        return False
    return top == package or not str(file).startswith(_INSTALLED)


def _content(file: Path) -> bytes:
    with suppress(OSError):
        return file.read_bytes()
    return b""
