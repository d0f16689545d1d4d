"""Imports point down, and heavy packages are imported late."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_imports_point_down() -> None:
    cli = pytest.importorskip("importlinter.cli", reason="needs import-linter")
    code = cli.lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert code == cli.EXIT_STATUS_SUCCESS


def test_extras_are_imported_late() -> None:
    """Importing the package and its command line takes none of the extras, nor what a report alone needs."""
    code = "import sys, brinell, brinell.cli; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert "brinell" in loaded
    late = {
        "torchvision",
        "timm",
        "transformers",
        "onnx",
        "onnxruntime",
        "onnxscript",
        "skimage",
        "sklearn",
        "foolbox",
        "pandas",
    }
    assert late & set(loaded) == set()
