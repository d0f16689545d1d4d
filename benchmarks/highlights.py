"""A grid of highlights beside the bare network, and heat maps beside a forward and backward pass.

    python -m benchmarks.highlights --device cuda

measures a ResNet-50 in bf16 on an accelerator (random weights; speed doesn't depend on them) in about a minute, and writes
benchmarks/results/highlights_accelerator.json: the whole lens, and what making the variants and asking about them cost.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

import brinell
from benchmarks.accelerator import bare_model, pictures
from benchmarks.end_to_end import per_second
from benchmarks.processor import MODEL
from brinell.config.execution import Execution
from brinell.criteria.criterion import find_criterion
from brinell.engine.evaluator import Bench
from brinell.engine.threads import CORES, answers, one_each_core, torch_alone
from brinell.engine.tuning import best_batch
from brinell.lenses.highlights.lens import HighlightOptions, highlights
from brinell.lenses.lens import Trials
from brinell.models.model import Model
from brinell.perturb.highlight import highlight_grid, highlight_view
from brinell.perturb.view import View
from brinell.resizing import repaint
from brinell.resizing.resample import resize
from brinell.saliency.mapper import open_eyes

SIZES = {"299 × 299": (299, 299), "500 × 375": (375, 500)}  # of originals, width first
IMAGES, ROUNDS = 4, 3


def measure() -> dict[str, Any]:
    """Variants a second over the bare network's, by the size of the originals; maps a second over forward and backward."""
    photos = brinell.open_dataset("demo-photos")
    model = brinell.open_model(MODEL, Execution())
    with torch_alone():
        batch = best_batch(model)
        rounds: dict[str, list[dict[str, float]]] = {name: [] for name in SIZES}
        for _ in range(ROUNDS):
            for name, (height, width) in SIZES.items():
                originals = [resize(photos[place].image[None], height, width)[0] for place in range(IMAGES)]
                bench = _bench(model, originals, batch)
                every = bench.inputs.repeat(16, 1, 1, 1)
                rounds[name].append(_round(bench, lambda every=every: len(answers(model, every, batch))))  # type: ignore[misc]
        maps = _maps(model, bench.inputs.repeat(4, 1, 1, 1), 16)
    return {"model": MODEL, "cores": CORES, "batch": batch, **_figures(rounds), "attention": maps}


def on_accelerator(batch: int, precision: str, images: int) -> dict[str, Any]:
    """The same on a CUDA device, and the parts of it."""
    execution = Execution(device="cuda", precision=precision, batch=batch)  # type: ignore[arg-type]
    model = brinell.open_model("torchvision:resnet50?pretrained=false", execution)
    bare = bare_model(model, batch)
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in SIZES}
    parts: dict[str, dict[str, float]] = {}
    smooth = [torch.from_numpy(picture).permute(2, 0, 1) for picture, _ in pictures(images)]
    for turn in range(ROUNDS):
        for name, (height, width) in SIZES.items():
            bench = _bench(model, [resize(picture[None], height, width)[0] for picture in smooth], batch)
            rounds[name].append(_round(bench, bare))
            if turn == ROUNDS - 1:
                parts[name] = _parts(bench)
    inputs = bench.inputs.repeat(batch // images + 1, 1, 1, 1)[:batch]
    return {
        "model": "ResNet-50",
        "device": torch.cuda.get_device_name(),
        "precision": precision,
        "batch": batch,
        "images": images,
        **_figures(rounds),
        "parts": parts,
        "attention": _maps(model, inputs, batch),
    }


def _parts(bench: Bench) -> dict[str, float]:
    """Variants a second: of making alone, with the kernel and without it, and of asking alone, about clean images; and how
    many operations the device is given for one image's hundred.
    """
    spots = [highlight_grid(*original.shape[1:], 5, HighlightOptions().sigmas_of(1, 1)) for original in bench.originals]
    samples = torch.arange(len(spots)).repeat_interleave(len(spots[0]))
    clean = View("clean", "clean", lambda original, some, to: to(original[None]).expand(len(some), -1, -1, -1))
    trials, nothing = (Trials(samples, view, torch.cat(spots)) for view in (highlight_view("exact"), clean))
    batches = [slice(start, start + bench.batch) for start in range(0, len(samples), bench.batch)]

    def make() -> int:
        for part in batches:
            bench.images(trials, part)
        torch.cuda.synchronize()
        return len(samples)

    def ask() -> int:
        bench.ask(nothing)
        return len(samples)

    found = {"making": per_second(make, 1.0), "asking": per_second(ask, 1.0)}
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        bench.images(trials, slice(0, len(spots[0])))
        torch.cuda.synchronize()
    found["launches"] = len(profile.events() or [])
    found["on_device_ms"] = sum(event.device_time_total for event in profile.events() or []) / 1000
    with patch.object(repaint, "load_kernels", lambda kind: None):
        found["making_by_products"] = per_second(make, 1.0)
    return found


def _bench(model: Model, originals: list[Tensor], batch: int) -> Bench:
    inputs = torch.stack([model.preprocess.model_input(original) for original in originals])
    labels = answers(model, inputs, batch).argmax(1).cpu()
    criterion = find_criterion("misclassification")
    ids = torch.arange(len(originals))
    return Bench(model, inputs, ids, labels, criterion=criterion, seed=0, batch=batch, originals=originals)


def _round(bench: Bench, bare: Callable[[], int]) -> dict[str, float]:
    """The whole grid of every image, between two looks at the bare network."""
    options = HighlightOptions()
    bench.drive(highlights(bench.shard(), highlight_view("exact"), HighlightOptions(cells=1)))  # what is made once is there
    before = per_second(bare, 2.0)
    start, asked = time.perf_counter(), bench.asked
    bench.drive(highlights(bench.shard(), highlight_view("exact"), options))
    if bench.model.device.type == "cuda":
        torch.cuda.synchronize()
    rate = (bench.asked - asked) / (time.perf_counter() - start)
    bare_rate = (before + per_second(bare, 2.0)) / 2
    return {"rate": rate, "bare": bare_rate, "ratio": rate / bare_rate}


def _figures(rounds: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    return {
        "rounds": {name: [one["ratio"] for one in own] for name, own in rounds.items()},
        "ratio": {name: median(one["ratio"] for one in own) for name, own in rounds.items()},
        "bare": median(one["bare"] for own in rounds.values() for one in own),
    }


def _maps(model: Model, inputs: Tensor, batch: int) -> dict[str, float]:
    """Heat maps a second, and what a forward pass and one back to the pixels reach in the same runtime."""
    labels = answers(model, inputs, batch).argmax(1)
    cpu = model.device.type == "cpu"
    parts = [slice(start, start + batch) for start in range(0, len(inputs), batch)]

    def each(work: Callable[[slice], Any]) -> int:
        list(one_each_core(work, parts) if cpu else map(work, parts))
        if not cpu:
            torch.cuda.synchronize()
        return len(inputs)

    ratios, rates = [], []
    with open_eyes(model) as eyes:
        for _ in range(ROUNDS):
            both = per_second(lambda: each(lambda part: model.gradient(inputs[part], labels[part])), 2.0)
            maps = per_second(lambda: each(lambda part: eyes.maps(inputs[part], labels[part])), 2.0)
            ratios.append(maps / both)
            rates.append(maps)
    return {"maps": median(rates), "ratio": median(ratios)}


def main() -> None:
    """Print the figures as JSON; an accelerator's are kept, too."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--images", type=int, default=64)
    given = parser.parse_args()
    found = measure() if given.device == "cpu" else on_accelerator(given.batch, given.precision, given.images)
    told = json.dumps(found, indent=1)
    print(told)
    if given.device != "cpu":
        (Path(__file__).parent / "results" / "highlights_accelerator.json").write_text(told + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
