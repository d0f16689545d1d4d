"""`python -m benchmarks.corruptions [--device cuda] [--source FOLDER] [--data PHOTOS]`: the speed of the corruptions.

Compares with imgcorr where it is installed, and with a checkout of imagecorruptions in FOLDER, on one core; on an
accelerator there are no peers. Each figure is the mean over severities 1 to 5 of the best of several rounds, of 224×224
images. Times on a CPU are CPU times, so that other programs matter less. Writes benchmarks/results/corruptions_DEVICE.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

import brinell
from brinell.models.preprocess import Preprocess
from brinell.perturb.corruptions.severity import CORRUPTIONS, STANDARD
from brinell.perturb.operator import find_operator

RESULTS = Path(__file__).parent / "results"
ROUNDS, CPU_BATCH, BATCH = 3, 8, 512
Corrupt = Callable[[str, int], object]


def main() -> None:
    """Measure, print and store the rates."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--source", type=Path)
    parser.add_argument("--data", default="demo-photos")
    options = parser.parse_args()
    torch.set_num_threads(1)
    device = torch.device(options.device)
    images = photographs(options.data, CPU_BATCH if device.type == "cpu" else BATCH).to(device)
    ways = {"brinell": (len(images), ours(images))}
    if device.type == "cpu":
        ways |= {name: (2, way) for name, way in peers(images[:2], options.source).items()}
    rates: dict[str, dict[str, float]] = {}
    for name in CORRUPTIONS:
        rates[name] = {package: _rate(way, name, count, device) for package, (count, way) in ways.items()}
        print(f"{name:28}", "  ".join(f"{package} {rate:,.0f}" for package, rate in rates[name].items()), flush=True)
    standard = [name for name in rates if CORRUPTIONS[name].family == STANDARD]
    means = {
        package: len(standard) / sum(1 / rates[name][package] for name in standard)
        for package in ways
        if all(rates[name][package] > 0 for name in standard)
    }
    print("harmonic mean over the 15:", {package: round(rate) for package, rate in means.items()})
    content = {"device": str(device), "batch": len(images), "rates": rates, "means": means}
    (RESULTS / f"corruptions_{device.type}.json").write_text(json.dumps(content, indent=1) + "\n")


def photographs(data: str, count: int) -> Tensor:
    """Return eight photographs, repeated as often as needed."""
    photos, model_input = brinell.open_dataset(data), Preprocess(224, 224).model_input
    few = torch.stack([model_input(photos[index].image) for index in range(8)])
    return few.repeat(-(-count // 8), 1, 1, 1)[:count]


def ours(images: Tensor) -> Corrupt:
    """Return brinell's corruptions of a batch."""
    ids = torch.arange(len(images), device=images.device) * 7919

    def corrupt(name: str, severity: int) -> object:
        return find_operator(f"{name}:{CORRUPTIONS[name].variant}").at(images, severity, seed=0, ids=ids)

    return corrupt


def peers(images: Tensor, source: Path | None) -> dict[str, Corrupt]:
    """Return what other packages have, one image after the other."""
    pictures = list(images.permute(0, 2, 3, 1).contiguous().numpy())
    found: dict[str, Corrupt] = {}
    try:
        import imgcorr

        found["imgcorr"] = lambda name, severity: [imgcorr.corrupt(one, severity, name) for one in pictures]
    except ImportError:
        print("imgcorr is not installed")
    if source is not None:
        module = _open_source(source)
        found["imagecorruptions"] = lambda name, severity: [
            np.uint8(getattr(module, name)(Image.fromarray(one), severity)) for one in pictures
        ]
    return found


def _open_source(folder: Path) -> Any:
    """Import a checkout of imagecorruptions; names that current packages no longer have are put back."""
    from scipy import ndimage

    resources, old = types.ModuleType("pkg_resources"), types.ModuleType("scipy.ndimage.interpolation")
    resources.resource_filename = lambda package, name: str(folder / "imagecorruptions" / name)  # type: ignore[attr-defined]
    old.map_coordinates = ndimage.map_coordinates  # type: ignore[attr-defined]
    sys.modules.setdefault("pkg_resources", resources)
    sys.modules.setdefault("scipy.ndimage.interpolation", old)
    sys.path.insert(0, str(folder))
    from imagecorruptions import corruptions

    return corruptions


def _rate(corrupt: Corrupt, name: str, count: int, device: torch.device) -> float:
    """Return images per second over all severities, or 0 where a package doesn't have the corruption."""
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    total = 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for severity in range(1, 6):
            best = float("inf")
            for _ in range(ROUNDS):
                try:
                    start = clock()
                    corrupt(name, severity)
                    if device.type == "cuda":
                        torch.cuda.synchronize()
                    best = min(best, clock() - start)
                except (AttributeError, KeyError, ValueError):
                    return 0.0
            total += best
    return 5 * count / total


if __name__ == "__main__":
    main()
