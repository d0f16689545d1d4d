"""Maps of windows: windows per second compared with the bare model, and the cost of a photograph.

    python -m benchmarks.fragility --device cuda > benchmarks/results/fragility_accelerator.json

measures a ResNet-50 on an accelerator (bf16, compiled) with whole photographs; on a CPU, the time of a photograph is
estimated from some of its windows.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

import brinell
from benchmarks.accelerator import RESNET, bare_model, open_fastest
from benchmarks.end_to_end import per_second
from brinell.config.execution import Execution
from brinell.criteria.criterion import find_criterion
from brinell.engine.evaluator import Evaluator
from brinell.engine.renderer import Renderer
from brinell.engine.threads import answers, torch_alone
from brinell.lenses.fragility.counts import count_rows
from brinell.lenses.fragility.fragile import WindowAnswers
from brinell.lenses.fragility.lens import measure as measure_windows
from brinell.lenses.fragility.lens import select_views
from brinell.lenses.fragility.maps import Maps, pack
from brinell.lenses.fragility.options import FragilityOptions
from brinell.lenses.fragility.windows import Neighbourhood, WindowGrid, window_side
from brinell.lenses.method import Trials
from brinell.models.model import Model
from brinell.perturb.windows import window_view

MODEL = "efficientnet_lite0"
HEIGHT, WIDTH = 375, 500  # the photograph of the paper (fragile recognition, ICLR 2019)
SIZES = (0.2, 0.4, 0.6, 0.8)
SIDES = (125, 250, 375, 500)
ROUNDS, SECONDS, BATCH, SOME = 5, 2.0, 16, 128


def measure() -> dict[str, Any]:
    """Measure on a CPU, in onnxruntime, with batches of 16 on each core."""
    model = brinell.open_model(MODEL, Execution())
    pre = model.preprocess
    plain = torch.full((BATCH * 8, pre.channels, pre.height, pre.width), 128, dtype=torch.uint8)
    facts = {"model": MODEL, "cores": os.cpu_count(), "batch": BATCH}
    with torch_alone():
        evaluator = _evaluator(model, _photograph(HEIGHT, WIDTH), BATCH)
        found = _rates(evaluator, lambda: len(answers(model, plain, BATCH)), SOME, ROUNDS)
        found["maps"] = _map_seconds()
    rate = found["rate"]
    windows = {f"{side}×{side}": _windows(side, side) for side in SIDES}
    grown = {name: {"windows": count, "seconds": count / rate} for name, count in windows.items()}
    seconds = _windows(HEIGHT, WIDTH) / rate + found["maps"]["seconds"]
    return facts | found | {"windows": _windows(HEIGHT, WIDTH), "seconds": seconds, "grown": grown}


def measure_on(device: str, precision: str, batch: int, *, rounds: int) -> dict[str, Any]:
    """Measure on an accelerator: rates, a whole photograph, and square photographs of several sizes."""
    execution = Execution(device=device, precision=precision, batch=batch)  # type: ignore[arg-type]
    model = open_fastest(RESNET, execution)
    evaluator = _evaluator(model, _photograph(HEIGHT, WIDTH), batch)
    found = _rates(evaluator, bare_model(model, batch), 16 * batch, rounds) if rounds else {}
    found["maps"] = _map_seconds()
    _whole(_evaluator(model, _photograph(SIDES[0], SIDES[0]), batch))  # warms up
    grown = {}
    for side in SIDES:
        square = _evaluator(model, _photograph(side, side), batch)
        grown[f"{side}×{side}"] = {"windows": _windows(side, side), "seconds": _whole(square)}
    facts = {"device": torch.cuda.get_device_name(), "model": "ResNet-50", "batch": batch, "torch": torch.__version__}
    facts |= {"precision": precision, "runtime": model.facts["runtime"]}
    return facts | found | {"windows": _windows(HEIGHT, WIDTH), "seconds": _whole(evaluator), "grown": grown}


def _photograph(height: int, width: int) -> Tensor:
    """Return a photograph of the demo at a size, or noise if there is none."""
    try:
        image = brinell.open_dataset("demo-photos")[20].image
    except brinell.BrinellError:
        return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (3, height, width), np.uint8))
    return torch.nn.functional.interpolate(image[None].float(), (height, width)).to(torch.uint8)[0]


def _evaluator(model: Model, image: Tensor, batch: int) -> Evaluator:
    model_input, zero = model.preprocess.model_input(image)[None], torch.zeros(1, dtype=torch.int64)
    criterion = find_criterion("top_k_misclassification(5)")
    original = model.preprocess.convert_channels(image).contiguous()
    renderer = Renderer(model.preprocess, model_input, zero, seed=0, originals=[original], device=model.device)
    return Evaluator(model, renderer, zero, criterion=criterion, batch=batch)


def _rates(evaluator: Evaluator, bare: Callable[[], int], count: int, number: int) -> dict[str, Any]:
    """Return the rates of windows of each size, with measurements of the bare model before and after each."""
    pre = evaluator.model.preprocess
    ratios: dict[float, list[float]] = {size: [] for size in SIZES}
    rates: list[float] = []
    bares: list[float] = []
    for size in SIZES:  # warms up
        _query(evaluator, window_view("", "bilinear", pre.height, pre.width), size, count)
    for _ in range(number):
        before = per_second(bare, SECONDS)
        bares.append(before)
        for size in SIZES:
            view = window_view("", "bilinear", pre.height, pre.width)
            rate = per_second(lambda view=view, size=size: _query(evaluator, view, size, count), SECONDS)  # type: ignore[misc]
            after = per_second(bare, SECONDS)
            ratios[size].append(rate / ((before + after) / 2))
            rates += [rate]
            before = after
    each = {str(size): median(own) for size, own in ratios.items()}
    rounds = [sum(own[index] for own in ratios.values()) / len(SIZES) for index in range(number)]
    return {"ratio": median(rounds), "rounds": rounds, "sizes": each, "bare": median(bares), "rate": median(rates)}


def _query(evaluator: Evaluator, view: Any, size: float, count: int) -> int:
    height, width = evaluator.renderer.originals[0].shape[1:]
    hood = Neighbourhood.of(window_side(size, height, width), height, width)
    corners = torch.from_numpy(hood.shifted.corners())
    start = len(corners) // 2
    part = corners[start : start + count]
    parameters = torch.cat([part, torch.full((len(part), 1), hood.judged.side)], 1).to(torch.float64)
    outcome = evaluator.query(Trials(torch.zeros(len(part), dtype=torch.int64), view, parameters))
    outcome.broken.cpu()
    return len(part)


def _whole(evaluator: Evaluator) -> float:
    """Return the seconds for all windows of an image at the four sizes, including shrunken ones, maps and rows."""
    options = FragilityOptions(sizes=SIZES)
    start = time.perf_counter()
    for view in select_views(options):
        evaluator.drive(measure_windows(evaluator.shard(), view, options))
    return time.perf_counter() - start


def _windows(height: int, width: int) -> int:
    return sum(len(Neighbourhood.of(window_side(size, height, width), height, width)) for size in SIZES)


def _map_seconds() -> dict[str, float]:
    """Return the seconds to count the fragile windows of the paper's photograph and pack its maps, and their size."""
    start, total = time.perf_counter(), 0
    for size in SIZES:
        hood = Neighbourhood.of(window_side(size, HEIGHT, WIDTH), HEIGHT, WIDTH)
        large, small = _smooth(hood.shifted), _smooth(hood.shrunk)
        count_rows(hood, large, small, None, neighbours=8)
        total += len(pack(Maps(large, small, 1)))
    return {"seconds": time.perf_counter() - start, "megabytes": total / 1e6}


def _smooth(grid: WindowGrid) -> WindowAnswers:
    rows, columns = np.meshgrid(grid.tops / 40.0, grid.lefts / 40.0, indexing="ij")
    noise = np.random.default_rng(grid.side).normal(size=grid.shape)
    confidence = (1 / (1 + np.exp(-(2 * np.sin(rows) * np.cos(columns) + 0.1 * noise)))).astype(np.float32)
    rank = ((1 - confidence) * 8).astype(np.uint8)
    return WindowAnswers(grid, rank < 5, rank.astype(np.int64), confidence, rank)


def main() -> None:
    """Print the figures of an accelerator as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="comparisons with the bare model; 0: photographs alone")
    given = parser.parse_args()
    found = measure_on(given.device, given.precision, given.batch, rounds=given.rounds)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
