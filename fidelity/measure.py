"""Brinell's rows as arrays, and the published curves.

Curves are arrays over levels 0..30. Outcomes are bool (images, levels), images in the order of their ids.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import brinell
from brinell.classes import Classes

ROOT = Path(__file__).parents[1]
ASSETS = Path(os.environ.get("BRINELL_ASSETS", ROOT.parent / "shared" / "assets"))
IMAGES = ASSETS / "images" / "imagenet_dev_300"
VARIANT = "published"  # of operators that are given by name alone
LITE0 = "efficientnet_lite0?resize=stretch"

Outcomes = NDArray[np.bool_]
Curve = NDArray[np.float64]


@dataclass(frozen=True)
class Measured:
    """A run: its images and, by (network, operator), whether each image is classified correctly at each level.

    `changed` is the mean share of changed pixels by operator and level; `grey` the mean grey value of each clean image.
    """

    images: NDArray[np.str_]
    right: dict[tuple[str, str], Outcomes]
    changed: dict[str, Curve]
    grey: NDArray[np.float64] | None

    def of(self, operator: str, network: str = "efficientnet_lite0") -> Outcomes:
        """Return the outcomes of a network under an operator."""
        return self.right[network, operator]

    def among(self, other: Measured) -> Measured:
        """Return the outcomes on the images of another run."""
        return self.only(np.isin(self.images, other.images))

    def only(self, kept: NDArray[np.bool_]) -> Measured:
        """Return the outcomes on some of the images."""
        right = {name: outcomes[kept] for name, outcomes in self.right.items()}
        return replace(self, images=self.images[kept], right=right, grey=None if self.grey is None else self.grey[kept])


def measure(
    name: str,
    operators: Sequence[str],
    *,
    models: str | Sequence[str] = LITE0,
    limit: int | None = None,
    levels: int = 30,
    seed: int = 0,
) -> Measured:
    """Execute or resume a run under runs/fidelity-NAME, and return its outcomes."""
    require_assets()
    data: dict[str, Any] = {"source": IMAGES, "limit": limit}
    lens = {"name": "profile", "operators": list(operators), "variant": VARIANT, "levels": levels}
    run = brinell.run(models, data, lens=lens, seed=seed, out=ROOT / "runs" / f"fidelity-{name}")
    return _measured(run)


def require_assets() -> None:
    """Exit with a message if the images are missing."""
    if not IMAGES.is_dir():
        raise SystemExit("ImageNet images not found; set BRINELL_ASSETS to the folder of test assets")


def finished(folder: Path) -> bool:
    """Whether a run exists and is finished."""
    manifest = folder / "manifest.json"
    return manifest.exists() and bool(json.loads(manifest.read_text(encoding="utf-8"))["finished"])


def network_of(
    name: str, execution: brinell.Execution, interpolation: Any = "bicubic", short_side: int | None = None
) -> brinell.Model:
    """Return a network of the assets as a torch module, for any device and for saliency maps."""
    require_assets()
    spec = importlib.util.spec_from_file_location("nets", ASSETS / "models" / "nets.py")
    assert spec is not None and spec.loader is not None
    nets = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(nets)
    module, (_, *size), classes = nets.load(name)
    return brinell.wrap(
        module,
        name=name,
        size=tuple(size),
        classes=Classes(tuple(classes)),
        short_side=short_side,
        interpolation=interpolation,
        execution=execution,
    )


def _measured(run: brinell.Run) -> Measured:
    rows = run.rows("select model, operator, image, level, correct from rows order by all").fetchnumpy()
    images, levels = np.unique(rows["image"]), len(np.unique(rows["level"]))
    pairs = zip(*(rows[name][:: len(images) * levels].tolist() for name in ("model", "operator")), strict=True)
    right = dict(zip(pairs, rows["correct"].reshape(-1, len(images), levels), strict=True))
    means = run.rows("select operator, level, avg(changed) as share from rows group by all order by all").fetchnumpy()
    changed = dict(zip(means["operator"][::levels].tolist(), means["share"].reshape(-1, levels), strict=True))
    greys = run.rows(
        "select image, avg(grey) as grey from rows where level = 0 and grey is not null group by all order by all"
    )
    grey = greys.fetchnumpy()["grey"]
    return Measured(images, right, changed, grey if len(grey) == len(images) else None)


@cache
def _reference() -> dict[str, Any]:
    reference: dict[str, Any] = json.loads((Path(__file__).parent / "published.json").read_text(encoding="utf-8"))
    return reference


def published(network: str = "EfficientNetB0") -> dict[str, Curve]:
    """Return the published curves of a network, by operator."""
    return {operator: np.array(curve) for operator, curve in _reference()["accuracy"][network].items()}


def published_networks() -> list[str]:
    """Return the networks of the paper."""
    return list(_reference()["accuracy"])


def published_changes() -> dict[str, list[tuple[int, int]]]:
    """Return by operator, for each network of the paper, a level and the percentage of pixels changed at it."""
    return {name: pairs for name, pairs in _reference()["changed"].items() if name != "source"}


def published_noise(network: str = "EfficientNetB0") -> int:
    """Return the first level of random noise below 50 %, the only figure in the paper."""
    return int(_reference()["noise_first_below_half"][network])
