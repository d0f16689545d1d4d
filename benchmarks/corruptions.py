"""`python -m benchmarks.corruptions [--device cuda] [--source FOLDER] [--data PHOTOS]`: the speed of the corruptions.

Compares with other packages (`corruption_peers`) where they are installed, and with a checkout of imagecorruptions in
FOLDER, on one core; on an accelerator there are no peers. torchvision needs the environment of `make test-zoo`, with
benchmarks/requirements.txt and `--data` of one's own; OPENBLAS_NUM_THREADS=1 keeps other packages on one core. Each figure
is the mean over severities 1 to 5 of the best of several rounds, in which the packages alternate, of 224×224 images. Times
on a CPU are CPU times, so that other programs matter less. Writes benchmarks/results/corruptions_DEVICE.json. `make bench`
measures the same on a CPU if BRINELL_IMAGECORRUPTIONS is that FOLDER.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path
from typing import Any

import cv2
import torch
from torch import Tensor

import brinell
from benchmarks.corruption_peers import Corrupt, peers
from brinell.models.preprocess import Preprocess
from brinell.perturb.corruptions.severity import CORRUPTIONS, STANDARD
from brinell.perturb.operator import find_operator

RESULTS = Path(__file__).parent / "results"
SOURCE = "BRINELL_IMAGECORRUPTIONS"  # environment variable: a checkout of bethgelab/imagecorruptions
ROUNDS, CPU_BATCH, BATCH, FEW = 5, 8, 512, 2  # packages without batches get few images


def main() -> None:
    """Measure and store the rates."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--source", type=Path)
    parser.add_argument("--data", default="demo-photos")
    options = parser.parse_args()
    device = torch.device(options.device)
    content = measure_rates(device, options.source, options.data)
    (RESULTS / f"corruptions_{device.type}.json").write_text(json.dumps(content, indent=1) + "\n")


def measure() -> dict[str, Any]:
    """Return the rates on a CPU; the stored ones if SOURCE names no checkout of imagecorruptions."""
    source = os.environ.get(SOURCE)
    if source is None:
        print(f"{SOURCE} names no checkout of imagecorruptions: its figures stay as they are")
        stored: dict[str, Any] = json.loads((RESULTS / "corruptions_cpu.json").read_text())
        return stored
    return measure_rates(torch.device("cpu"), Path(source), "demo-photos")


def measure_rates(device: torch.device, source: Path | None, data: str) -> dict[str, Any]:
    """Measure and print the rates of all packages that are installed."""
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    images = photographs(data, CPU_BATCH if device.type == "cpu" else BATCH).to(device)
    ways = {"brinell": (len(images), ours(images))}
    if device.type == "cpu":
        ways |= {name: (FEW, way) for name, way in peers(images[:FEW], source).items()}
    rates: dict[str, dict[str, float]] = {}
    for name in CORRUPTIONS:
        rates[name] = _rates(ways, name, device)
        print(f"{name:28}", "  ".join(f"{package} {rate:,.0f}" for package, rate in rates[name].items()), flush=True)
    standard = [name for name in rates if CORRUPTIONS[name].family == STANDARD]
    means = {
        package: len(standard) / sum(1 / rates[name][package] for name in standard)
        for package in ways
        if all(package in rates[name] for name in standard)
    }
    print("harmonic mean over the 15:", {package: round(rate) for package, rate in means.items()})
    return {
        "device": str(device),
        "batch": len(images),
        "load": round(os.getloadavg()[0], 1),
        "packages": list(ways),
        "standard": standard,
        "rates": rates,
        "means": means,
    }


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


def _rates(ways: dict[str, tuple[int, Corrupt]], name: str, device: torch.device) -> dict[str, float]:
    """Return images per second over all severities, by package; packages that don't have the corruption are left out."""
    totals = dict.fromkeys(ways, 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for severity in range(1, 6):
            best = dict.fromkeys(totals, float("inf"))
            for _ in range(ROUNDS):
                for package in list(best):
                    try:
                        best[package] = min(best[package], _seconds(ways[package][1], name, severity, device))
                    except (AttributeError, KeyError, ValueError):  # how packages say that they don't have it
                        del best[package]
            totals = {package: totals[package] + seconds for package, seconds in best.items()}
    return {package: 5 * ways[package][0] / total for package, total in totals.items()}


def _seconds(corrupt: Corrupt, name: str, severity: int, device: torch.device) -> float:
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    start = clock()
    corrupt(name, severity)
    if device.type == "cuda":
        torch.cuda.synchronize()
    return clock() - start


if __name__ == "__main__":
    main()
