"""Brinell's highlights beside the published ones: writes docs/fidelity-highlights.md.

    python -m fidelity.highlights

Runs lie under runs/fidelity-highlights-*, so a second call measures nothing again.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

import brinell
from brinell.models import Model
from fidelity.measure import ASSETS, IMAGES, LITE0, ROOT, require_assets

NETS = ("mobilenet_v2", "squeezenet1_1", "mobilenet_v1_075_192")  # as torch modules, which can be looked into
FEWER = 100  # images of the runs that are compared with the first


@cache
def networks() -> list[Model]:
    """The four classifiers."""
    require_assets()
    spec = spec_from_file_location("nets", ASSETS / "models" / "nets.py")
    assert spec is not None and spec.loader is not None
    nets = module_from_spec(spec)
    sys.modules["nets"] = nets
    spec.loader.exec_module(nets)
    classes = (ASSETS / "models" / "imagenet_classes.txt").read_text(encoding="utf-8").splitlines()
    found = [brinell.open_model(LITE0)]
    for name in NETS:
        module, (_, height, width), _ = nets.load(name)
        found.append(brinell.wrap(module, size=(height, width), classes=classes, name=name))
    return found


def run(name: str, operators: Sequence[str], *, limit: int | None = None, **options: Any) -> brinell.Run:
    """Carry out a run of the four networks, or what is missing of it."""
    lens = {"name": "highlights", "operators": list(operators), **options}
    data = {"source": IMAGES, "limit": limit}
    return brinell.run(networks(), data, lens=lens, out=ROOT / "runs" / f"fidelity-highlights-{name}")
