"""Compare brinell's shares of fragile windows with the published ones (ICLR 2019); writes docs/fidelity-fragility.md.

    python -m fidelity.fragility measure [--device cuda]
    python -m fidelity.fragility store [--device cuda]
    python -m fidelity.fragility page

`measure` executes runs under runs/fidelity-fragility-*; finished ones are not repeated. On two cores all maps of one image
take a quarter of an hour, so most figures there are of windows many pixels apart, each compared with all its one-pixel
neighbours; an accelerator evaluates more photographs and windows. `store` stores the figures of these runs in
fidelity/results/fragility.json, from which `page` writes the page. The page includes the study on CIFAR-10
(`fidelity.fragility_cifar`).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import brinell
from brinell.config.execution import Execution, Precision
from brinell.models.model import Model
from fidelity.fragility_cifar import edges
from fidelity.fragility_page import FIGURES, PAGE, draw_figures, render_page
from fidelity.fragility_results import collect
from fidelity.fragility_tables import FAST, NETWORKS, SIZES, TOP, UNRESIZED
from fidelity.measure import ASSETS, IMAGES, ROOT, finished, network_of, require_assets

RESULTS = Path(__file__).parent / "results" / "fragility.json"


@dataclass(frozen=True)
class Effort:
    """How much to measure: the photographs and a stride for each size, and the photographs with every window."""

    name: str
    images: int
    strides: Mapping[float, int]
    whole_images: int
    whole_sizes: Sequence[float]
    whole_networks: Sequence[str]
    precision: Precision = "fp32"
    batch: int | None = None

    def stride(self, size: float) -> int:
        """Return the stride of a size."""
        return self.strides.get(size, 16)


# about as many windows of each size
SMALL = Effort("some", 8, {0.2: 32, 0.4: 32, 0.6: 16, 0.8: 8}, 1, [0.8], [FAST])
LARGE = Effort("many", 20, {0.2: 10, 0.4: 7, 0.6: 4, 0.8: 4, UNRESIZED: 4}, 2, SIZES, NETWORKS, "fp16", 1024)


def run(
    name: str,
    size: float,
    effort: Effort,
    device: str,
    *,
    networks: Sequence[str] = NETWORKS,
    images: int = 0,
    **options: object,
) -> brinell.Run:
    """Execute a run over windows of one size, or resume it."""
    out = ROOT / "runs" / f"fidelity-fragility-{effort.name}-{name}-{size:g}"
    if finished(out):
        return brinell.Run(out)
    require_assets()
    data = {"source": IMAGES, "limit": images or effort.images, "shuffle": True}
    criterion = f"top_k_misclassification({TOP})"
    lens = {"name": "fragility", "sizes": [size], "stride": effort.stride(size), "criterion": criterion, **options}
    execution = Execution(device=device, precision=effort.precision, compile=device != "cpu", batch=effort.batch)
    return brinell.run([_model(network, execution) for network in networks], data, lens=lens, out=out, execution=execution)


@cache  # compiled once
def _model(network: str, execution: Execution) -> str | Model:
    """Return a network in onnxruntime on a CPU, and as a torch module elsewhere."""
    if execution.device == "cpu":
        return f"onnx:{ASSETS}/models/{network}.onnx?classes={ASSETS}/models/imagenet_classes.txt"
    if network == "efficientnet_lite0":
        return brinell.open_model("efficientnet_lite0?resize=stretch", execution)
    return network_of(network, execution, "bilinear")


def run_all(effort: Effort, device: str) -> dict[str, dict[float, brinell.Run]]:
    """Return all runs, by name and size."""
    networks, images = effort.whole_networks, effort.whole_images
    return {
        "sampled": {size: run("sampled", size, effort, device) for size in reversed(SIZES)},
        "unresized": {UNRESIZED: run("unresized", UNRESIZED, effort, device)},
        "nearest": {
            0.2: run("nearest", 0.2, effort, device, networks=[FAST], stride=max(8, effort.stride(0.2)), fit="nearest")
        },
        "whole": {
            size: run("whole", size, effort, device, networks=networks, images=images, stride=1)
            for size in effort.whole_sizes
        },
    }


def main() -> None:
    """Execute runs, store their figures, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["measure", "store", "page"])
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    if given.what == "page":
        results = json.loads(RESULTS.read_text(encoding="utf-8"))
        PAGE.write_text(render_page(results), encoding="utf-8")
        draw_figures(results, FIGURES)
        print(f"wrote {PAGE.relative_to(ROOT)}")
        return
    effort = SMALL if given.device == "cpu" else LARGE
    runs = run_all(effort, given.device)
    if given.what == "store":
        strides = {size: effort.stride(size) for size in SIZES}
        results = collect(runs, images=effort.images, strides=strides, whole_images=effort.whole_images)
        results["edges"] = edges()
        RESULTS.write_text(json.dumps(results, separators=(",", ":")) + "\n", encoding="utf-8")
        print(f"wrote {RESULTS.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
