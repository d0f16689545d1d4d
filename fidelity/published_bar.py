"""The published corruptions of ImageNet-C-bar, from a copy of facebookresearch/augmentation-corruption.

They are imported from its folder `imagenet_c_bar` and run as they are on current packages; none of that code is kept here.
"""

from __future__ import annotations

import csv
import importlib
import os
import sys
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

VARIABLE = "BRINELL_IMAGENET_C_BAR"  # names the folder
SIDES = {224: "imagenet_c_bar.csv", 32: "cifar10_c_bar.csv"}  # pixels, and where their strengths are


def find_folder() -> Path | None:
    """Return the folder of the published code, if there is a copy."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


@lru_cache(1)
def import_published(folder: Path) -> ModuleType:
    """Return the module of the published corruptions; its general names, such as `utils`, are free again afterwards."""
    own = ("base", "corrupt", "utils", "utils.image", "utils.perlin_noise")
    held = {name: sys.modules.pop(name) for name in own if name in sys.modules}
    with patch.object(sys, "path", [str(folder), *sys.path]):
        module = importlib.import_module("corrupt")
    for name in own:
        sys.modules.pop(name, None)
    sys.modules.update(held)
    return module


def published_classes(module: ModuleType) -> dict[str, Any]:
    """Return the classes of corruptions by name."""
    return {kind.name: kind for kind in vars(module).values() if isinstance(kind, type) and hasattr(kind, "name")}


def published_strengths(folder: Path, side: int) -> dict[str, list[float]]:
    """Return the strengths of the five severities by name, for images of a side."""
    with (folder / SIDES[side]).open(encoding="utf-8", newline="") as file:
        return {name: [float(value) for value in values] for name, *values in csv.reader(file)}
