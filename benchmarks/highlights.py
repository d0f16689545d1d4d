"""The highlights lens compared with the bare network, and saliency maps compared with a forward and backward pass.

    python -m benchmarks.highlights --device cuda

measures a ResNet-50 in bf16 on an accelerator (random weights; speed doesn't depend on them) in about a minute, and writes
benchmarks/results/highlights_accelerator.json: the whole lens, and its rendering and queries alone.
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
from benchmarks.accelerator import RESNET, bare_model, open_fastest, pictures
from benchmarks.end_to_end import per_second
from benchmarks.processor import MODEL
from brinell.config.execution import Execution
from brinell.criteria.criterion import find_criterion
from brinell.engine.evaluator import Evaluator
from brinell.engine.renderer import Renderer
from brinell.engine.threads import CORES, answers, one_each_core, torch_alone
from brinell.engine.tuning import best_batch
from brinell.lenses.highlights.lens import measure as measure_highlights
from brinell.lenses.highlights.lens import sigmas_of
from brinell.lenses.highlights.options import HighlightOptions
from brinell.lenses.method import Trials
from brinell.models.model import Model
from brinell.perturb.highlight import highlight_grid, highlight_view
from brinell.perturb.view import View
from brinell.resizing import repaint
from brinell.resizing.resample import resize
from brinell.saliency.mapper import open_mapper

SIZES = {"299 × 299": (299, 299), "500 × 375": (375, 500)}  # of originals, width first
IMAGES, ROUNDS = 4, 3


def measure() -> dict[str, Any]:
    """Return variants per second relative to the bare network, by the size of the originals; maps per second relative to a
    forward and backward pass.
    """
    photos = brinell.open_dataset("demo-photos")
    model = brinell.open_model(MODEL, Execution())
    with torch_alone():
        batch = best_batch(model)
        rounds: dict[str, list[dict[str, float]]] = {name: [] for name in SIZES}
        for _ in range(ROUNDS):
            for name, (height, width) in SIZES.items():
                originals = [resize(photos[index].image[None], height, width)[0] for index in range(IMAGES)]
                evaluator = _evaluator(model, originals, batch)
                inputs = evaluator.renderer.inputs
                every = inputs.repeat(16, 1, 1, 1)
                rounds[name].append(_round(evaluator, lambda every=every: len(answers(model, every, batch))))  # type: ignore[misc]
        maps = _maps(model, inputs.repeat(4, 1, 1, 1), 16)
    return {"model": MODEL, "cores": CORES, "batch": batch, **_figures(rounds), "saliency": maps}


def on_accelerator(batch: int, precision: str, images: int) -> dict[str, Any]:
    """Return the same on a CUDA device, and its parts."""
    execution = Execution(device="cuda", precision=precision, batch=batch)  # type: ignore[arg-type]
    model = open_fastest(RESNET, execution)
    bare = bare_model(model, batch)
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in SIZES}
    parts: dict[str, dict[str, float]] = {}
    smooth = [torch.from_numpy(picture).permute(2, 0, 1) for picture, _ in pictures(images)]
    for turn in range(ROUNDS):
        for name, (height, width) in SIZES.items():
            evaluator = _evaluator(model, [resize(picture[None], height, width)[0] for picture in smooth], batch)
            rounds[name].append(_round(evaluator, bare))
            if turn == ROUNDS - 1:
                parts[name] = _parts(evaluator)
    inputs = evaluator.renderer.inputs.repeat(batch // images + 1, 1, 1, 1)[:batch]
    return {
        "model": "ResNet-50",
        "device": torch.cuda.get_device_name(),
        "precision": precision,
        "runtime": model.facts["runtime"],
        "batch": batch,
        "images": images,
        **_figures(rounds),
        "parts": parts,
        "saliency": _maps(model, inputs, batch),
    }


def _parts(evaluator: Evaluator) -> dict[str, float]:
    """Return variants per second of rendering alone, with and without the kernel, and of queries alone, with clean images;
    and how many operations the device gets for the hundred variants of one image.
    """
    renderer, batch = evaluator.renderer, evaluator.batch
    sigmas = sigmas_of(HighlightOptions(relative=False), 1, 1)
    spots = [highlight_grid(*original.shape[1:], 5, sigmas) for original in renderer.originals]
    samples = torch.arange(len(spots)).repeat_interleave(len(spots[0]))
    clean = View("clean", "clean", lambda original, some, to: to(original[None]).expand(len(some), -1, -1, -1), "clean", ())
    view, parameters = highlight_view("exact"), torch.cat(spots)
    batches = [slice(start, start + batch) for start in range(0, len(samples), batch)]

    def render() -> int:
        for part in batches:
            renderer.images(view, samples[part], parameters[part])
        torch.cuda.synchronize()
        return len(samples)

    def query() -> int:
        evaluator.query(Trials(samples, clean, parameters))
        return len(samples)

    found = {"rendering": per_second(render, 1.0), "queries": per_second(query, 1.0)}
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        renderer.images(view, samples[: len(spots[0])], parameters[: len(spots[0])])
        torch.cuda.synchronize()
    found["launches"] = len(profile.events() or [])
    found["on_device_ms"] = sum(event.device_time_total for event in profile.events() or []) / 1000
    with patch.object(repaint, "load_kernels", lambda kind: None):
        found["rendering_by_products"] = per_second(render, 1.0)
    return found


def _evaluator(model: Model, originals: list[Tensor], batch: int) -> Evaluator:
    inputs = torch.stack([model.preprocess.model_input(original) for original in originals])
    labels = answers(model, inputs, batch).argmax(1).cpu()
    criterion = find_criterion("misclassification")
    ids = torch.arange(len(originals))
    renderer = Renderer(model.preprocess, inputs, ids, seed=0, originals=originals, device=model.device)
    return Evaluator(model, renderer, labels, criterion=criterion, batch=batch)


def _round(evaluator: Evaluator, bare: Callable[[], int]) -> dict[str, float]:
    """Measure the whole grid of every image, between two measurements of the bare network."""
    view, shard = highlight_view("exact"), evaluator.shard()
    evaluator.drive(measure_highlights(shard, view, HighlightOptions(cells=1)))  # prepares what is shared
    before = per_second(bare, 2.0)
    start, queries = time.perf_counter(), evaluator.queries
    evaluator.drive(measure_highlights(shard, view, HighlightOptions()))
    if evaluator.model.device.type == "cuda":
        torch.cuda.synchronize()
    rate = (evaluator.queries - queries) / (time.perf_counter() - start)
    bare_rate = (before + per_second(bare, 2.0)) / 2
    return {"rate": rate, "bare": bare_rate, "ratio": rate / bare_rate}


def _figures(rounds: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    return {
        "rounds": {name: [one["ratio"] for one in own] for name, own in rounds.items()},
        "ratio": {name: median(one["ratio"] for one in own) for name, own in rounds.items()},
        "bare": median(one["bare"] for own in rounds.values() for one in own),
    }


def _maps(model: Model, inputs: Tensor, batch: int) -> dict[str, float]:
    """Return saliency maps per second, absolute and relative to a forward pass and one back to the pixels."""
    labels = answers(model, inputs, batch).argmax(1)
    cpu = model.device.type == "cpu"
    parts = [slice(start, start + batch) for start in range(0, len(inputs), batch)]

    def each(work: Callable[[slice], Any]) -> int:
        list(one_each_core(work, parts) if cpu else map(work, parts))
        if not cpu:
            torch.cuda.synchronize()
        return len(inputs)

    ratios, rates = [], []
    with open_mapper(model) as mapper:
        for _ in range(ROUNDS):
            both = per_second(lambda: each(lambda part: model.gradient(inputs[part], labels[part])), 2.0)
            maps = per_second(lambda: each(lambda part: mapper.maps(inputs[part], labels[part])), 2.0)
            ratios.append(maps / both)
            rates.append(maps)
    return {"maps": median(rates), "ratio": median(ratios)}


def main() -> None:
    """Print the figures as JSON; those of an accelerator are stored as well."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--images", type=int, default=64)
    given = parser.parse_args()
    found = measure() if given.device == "cpu" else on_accelerator(given.batch, given.precision, given.images)
    text = json.dumps(found, indent=1)
    print(text)
    if given.device != "cpu":
        (Path(__file__).parent / "results" / "highlights_accelerator.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
