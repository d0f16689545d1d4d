"""Bare networks in onnxruntime and OpenVINO on a CPU, in turns: `python -m benchmarks.runtimes`."""

from __future__ import annotations

import json
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

import brinell
from brinell.config.execution import Execution
from brinell.models.model import Model
from brinell.models.runtimes import EXPORTED, processor
from brinell.versions import package_version

RESULT = Path(__file__).parent / "results" / "runtimes.json"
ASSETS = Path(os.environ.get("BRINELL_ASSETS", Path(__file__).parents[2] / "shared" / "assets"))
MODELS = {"EfficientNet-Lite0": "efficientnet_lite0", "MobileNet V2": f"onnx:{ASSETS}/models/mobilenet_v2.onnx"}
BATCH, ROUNDS, BATCHES = 2, 9, 64


def measure(source: str) -> dict[str, Any]:
    """Return images per second, and per second of CPU time, in each runtime, with a batch on each core."""
    models = {name: brinell.open_model(source, Execution(runtime=name, device="cpu")) for name in sorted(EXPORTED)}
    photos = brinell.open_dataset("demo-photos")
    anyone = next(iter(models.values()))
    inputs = torch.stack([anyone.preprocess.model_input(photos[index].image) for index in range(BATCH)])
    images = anyone.preprocess.normalise(inputs)
    answers = [one.forward(images).argmax(1) for one in models.values()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        rounds = [{name: _rates(one, images, pool) for name, one in models.items()} for _ in range(ROUNDS)]
    found: dict[str, Any] = {"same_predictions": bool((answers[0] == answers[1]).all())}
    for kind in ("wall", "cpu"):
        ratios = [turn["openvino"][kind] / turn["onnxruntime"][kind] for turn in rounds]
        found[kind] = {name: round(statistics.median(turn[name][kind] for turn in rounds), 1) for name in models}
        found[kind]["ratio"] = [round(each, 2) for each in (statistics.median(ratios), min(ratios), max(ratios))]
    return found


def _rates(model: Model, images: torch.Tensor, pool: ThreadPoolExecutor) -> dict[str, float]:
    list(pool.map(model.forward, [images] * 2))  # whoever comes next starts with cold caches
    wall, cpu = time.perf_counter(), time.process_time()
    list(pool.map(model.forward, [images] * BATCHES))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"wall": BATCHES * BATCH / wall, "cpu": BATCHES * BATCH / cpu}


if __name__ == "__main__":
    torch.set_num_threads(os.cpu_count() or 1)  # streams of OpenVINO
    before = os.getloadavg()[0]
    found = {name: measure(source) for name, source in MODELS.items()}
    versions = {name: package_version(name) for name in sorted(EXPORTED)}
    facts: dict[str, Any] = {
        "processor": processor(),
        "cores": os.cpu_count(),
        "load": round(before, 1),
        "versions": versions,
        "batch": BATCH,
    }
    RESULT.write_text(json.dumps({**facts, "models": found}, indent=1) + "\n")
    print(RESULT.read_text())
