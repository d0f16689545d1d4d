"""Brinell's shares of fragile windows beside the published ones: writes docs/fidelity-fragility.md.

    python -m fidelity.fragility [--device cuda --stride 4 --images 50]

Runs lie under runs/fidelity-fragility-*, so a second call measures nothing again. On two cores all maps of one image take a
quarter of an hour, so most figures are of windows some pixels apart, each judged by all its neighbours at one pixel.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import brinell
from brinell.execution import Execution
from fidelity.measure import ASSETS, IMAGES, ROOT, require_assets

NETWORKS = ("mobilenet_v2", "squeezenet1_1", "efficientnet_lite0")
FAST = "squeezenet1_1"
SIZES = (0.2, 0.4, 0.6, 0.8)
STRIDES = {0.2: 32, 0.4: 32, 0.6: 16, 0.8: 8}  # about as many windows of each size
UNRESIZED = 224  # pixels: the networks' own input, so that nothing is resized
TOP = 5


@dataclass(frozen=True)
class Effort:
    """How much is measured, and where."""

    images: int = 8
    stride: int | None = None
    device: str = "auto"

    def strided(self, size: float) -> int:
        """The stride of a size."""
        return self.stride or STRIDES.get(size, 16)


def run(
    name: str, size: float, effort: Effort, *, networks: Sequence[str] = NETWORKS, images: int | None = None, **options: Any
) -> brinell.Run:
    """Carry out a run over windows of one size, or what is missing of it."""
    require_assets()
    classes = f"classes={ASSETS}/models/imagenet_classes.txt"
    models = [f"onnx:{ASSETS}/models/{network}.onnx?{classes}" for network in networks]
    data = {"source": IMAGES, "limit": images or effort.images, "shuffle": True}
    lens = {
        "name": "fragility",
        "sizes": [size],
        "stride": effort.strided(size),
        "criterion": f"top_k_misclassification({TOP})",
        **options,
    }
    out = ROOT / "runs" / f"fidelity-fragility-{name}-{size:g}"
    return brinell.run(models, data, lens=lens, out=out, execution=Execution(device=effort.device))


def measured(effort: Effort) -> dict[str, dict[float, brinell.Run]]:
    """All runs, by their names and sizes."""
    found = {"sampled": {size: run("sampled", size, effort) for size in reversed(SIZES)}}
    found["whole"] = {0.8: run("whole", 0.8, effort, images=1, stride=1)}
    found["unresized"] = {UNRESIZED: run("unresized", UNRESIZED, effort)}
    found["nearest"] = {0.2: run("nearest", 0.2, effort, networks=[FAST], fit="nearest")}
    return found


def main() -> None:
    """Measure, compare, and write the page."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=Effort.images)
    parser.add_argument("--stride", type=int)
    parser.add_argument("--device", default="auto")
    measured(Effort(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
