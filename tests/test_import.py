"""What may be imported without torch, and what `import brinell` offers."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from importlib import import_module

import pytest
from pydantic import BaseModel

import brinell
import brinell.config

CONFIG = [f"brinell.config.{module.name}" for module in pkgutil.iter_modules(brinell.config.__path__)]
TORCH_FREE = [
    *CONFIG,
    "brinell",
    "brinell.criteria.criterion",
    "brinell.datasets.sources",
    "brinell.models.sources",
    "brinell.motion.names",
    "brinell.types",
    "brinell.validation",
]


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_options_and_listings_need_no_torch() -> None:
    code = f"""
import sys
for module in {TORCH_FREE}:
    __import__(module)
from brinell.criteria.criterion import CRITERIA
from brinell.datasets.sources import SOURCES as DATASETS
from brinell.models.sources import SOURCES as MODELS
print(len(CRITERIA), len(DATASETS), len(MODELS))
heavy = {{"torch", "numpy", "PIL", "duckdb", "altair", "pyarrow", "cv2", "scipy"}} & set(sys.modules)
assert not heavy, heavy
"""
    assert all(int(count) > 5 for count in run_python(code).split())


def test_import_brinell_imports_nothing_else() -> None:
    code = "import sys, brinell; print(*(m for m in sys.modules if m.startswith(('brinell', 'numpy', 'pydantic'))))"
    assert run_python(code).split() == ["brinell"]


def test_public_names_are_imported_on_first_use() -> None:
    assert set(brinell._MODULE_OF) == set(brinell.__all__)
    assert set(brinell.__all__) <= set(dir(brinell))
    assert all(getattr(brinell, name) is not None for name in brinell.__all__)
    namespace: dict[str, object] = {}
    exec("from brinell import *", namespace)
    assert namespace["run"] is brinell.run
    with pytest.raises(AttributeError, match="module 'brinell' has no attribute 'rum'"):
        brinell.rum  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("module", CONFIG)
def test_every_option_is_described(module: str) -> None:
    for kind in vars(import_module(module)).values():
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            for name, field in kind.model_fields.items():
                text = field.description or ""
                assert text[:1].isupper() and text.endswith("."), f"{kind.__name__}.{name} needs a one-sentence description"
