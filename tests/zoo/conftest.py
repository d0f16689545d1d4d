"""What several tests of this folder use."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType

import pytest


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the interpreter run Triton's own functions, such as `tl.sum`, too, although Triton is loaded already."""
    triton = pytest.importorskip("triton", reason="needs Triton, which comes with torch for CUDA")
    interpreter = importlib.import_module("triton.runtime.interpreter")
    made: dict[int, object] = {}  # the interpreter recognises some functions by their identity
    for module in (triton.language.standard, triton.language):
        for name, value in vars(module).items():
            if isinstance(value, triton.JITFunction):
                found = made.setdefault(id(value), interpreter.InterpretedFunction(value.fn))
                monkeypatch.setattr(module, name, found)


@pytest.fixture
def interpreted(library: None, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Load a module of `brinell.kernels` whose kernels run on a CPU, in Triton's interpreter."""
    pytest.importorskip("triton", reason="needs Triton, which comes with torch for CUDA")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    return lambda name: importlib.reload(importlib.import_module(f"brinell.kernels.{name}"))
