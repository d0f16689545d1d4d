"""What several tests of this folder use."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType

import pytest


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Load a module of `brinell.kernels` whose kernels run on a CPU, in Triton's interpreter."""
    pytest.importorskip("triton", reason="needs Triton, which comes with torch for CUDA")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    return lambda name: importlib.reload(importlib.import_module(f"brinell.kernels.{name}"))
