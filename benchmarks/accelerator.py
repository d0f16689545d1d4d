"""Speed on a CUDA device: a ResNet-50 in bf16 with batch size 512 (random weights; speed doesn't depend on them).

python -m benchmarks.accelerator profile > benchmarks/results/accelerator.json
python -m benchmarks.accelerator search > benchmarks/results/accelerator_search.json
python -m benchmarks.accelerator runtimes > benchmarks/results/accelerator_runtimes.json
"""

from __future__ import annotations

import argparse
import copy
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import torch

import brinell
from benchmarks.end_to_end import one_round, operators, per_second, summary
from brinell.config.execution import Execution
from brinell.criteria.criterion import find_criterion
from brinell.engine.evaluator import Evaluator
from brinell.engine.threads import answers
from brinell.lenses.knob.lens import measure as measure_property
from brinell.lenses.knob.options import KnobOptions
from brinell.lenses.method import Categorical
from brinell.lenses.outcomes import BROKEN
from brinell.models.compile_choice import GAINS, expecting
from brinell.models.compiling import Ways, measure_way
from brinell.models.device import select_device
from brinell.models.model import Model
from brinell.models.modules import DTYPES, torch_forward
from brinell.perturb.property import find_property, property_names

RESNET = "torchvision:resnet50?pretrained=false"
NETWORKS = ("resnet50", "mobilenet_v2", "efficientnet_b0", "convnext_tiny")


def pictures(count: int) -> list[tuple[np.ndarray, None]]:
    """Return different smooth 224x224 images with grain."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(count, 3, 7, 7, generator=generator) * 255
    smooth = torch.nn.functional.interpolate(coarse, (224, 224), mode="bicubic")
    grain = torch.randint(-12, 13, smooth.shape, generator=generator)
    images = (smooth + grain).clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).numpy()
    return [(image, None) for image in images]


def open_fastest(name: str, execution: Execution) -> Model:
    """Open a model as a long run does: in the fastest runtime."""
    with expecting(10**9, None):
        return brinell.open_model(name, execution)


def bare_model(model: Model, batch: int) -> Callable[[], int]:
    """Return a function that runs the module alone on a normalised batch on the device, ten times without waiting."""
    pre = model.preprocess
    plain = torch.full((batch, pre.channels, pre.height, pre.width), 128, dtype=torch.uint8, device=model.device)
    images = pre.normalise(plain, model.takes)

    def query() -> int:
        with torch.inference_mode():
            for _ in range(10):
                answer = model.forward(images)
            answer[0, 0].item()  # waits for the device
        return 10 * batch

    query()
    return query


def profile(model: Model, given: argparse.Namespace, execution: Execution) -> dict[str, Any]:
    """Compare a run of the profile lens with the bare model."""
    data, bare = pictures(given.images), bare_model(model, given.batch)
    return summary([one_round(model, data, operators(), execution, bare, 2.0) for _ in range(given.rounds)])


def search(model: Model, given: argparse.Namespace, execution: Execution) -> dict[str, Any]:
    """Compare forward passes per second in the exact search of every property with the bare model."""
    images = torch.stack([torch.from_numpy(image).permute(2, 0, 1) for image, _ in pictures(given.images)])
    bare, labels = bare_model(model, given.batch), answers(model, images, given.batch).argmax(1)
    criterion = find_criterion("misclassification")
    ids = torch.arange(len(images))
    evaluator = Evaluator.of(model, images, ids, labels, criterion=criterion, seed=0, batch=given.batch)
    rates, spent, alone, broke = {}, 0.0, 0.0, {}
    for name in property_names():  # compiles what it needs, which differs between severities
        search_property(evaluator, name, points=given.points)
    before = per_second(bare, 1.0)
    for name in property_names():
        queries, seconds, broken = search_property(evaluator, name, points=given.points)
        after = per_second(bare, 1.0)
        rate = (before + after) / 2
        rates[name], broke[name] = queries / seconds / rate, broken / len(images)
        spent, alone, before = spent + seconds, alone + queries / rate, after
    return {"bare": before, "ratio": alone / spent, "points": given.points, "properties": rates, "broken": broke}


def runtimes(given: argparse.Namespace, execution: Execution) -> dict[str, Any]:
    """Return the seconds before the first image and the images per second of networks in every runtime."""
    from torchvision import models

    device, dtype = select_device(execution), DTYPES[execution.precision]
    found: dict[str, dict[str, Any]] = {}
    for name in given.networks.split(","):
        module = models.get_model(name).eval().requires_grad_(False)
        place = partial(_place, device=device, dtype=dtype)
        ways = Ways(module.to(device), place, lambda each: torch_forward(each, execution))
        eager = torch_forward(place(copy.deepcopy(module)), execution)
        images = torch.zeros(given.batch, 3, 224, 224, device=device, dtype=dtype)
        images = images.contiguous(memory_format=torch.channels_last)
        found[name] = {"torch": asdict(measure_way(eager, images))}
        for way in [name for name in GAINS if name != "torch"]:
            try:
                found[name][way] = asdict(measure_way(ways.make(way, eager, given.batch), images))
            except ValueError:
                found[name][way] = None  # it has nothing to fuse
        print(name, found[name], file=sys.stderr, flush=True)
    return {"device": torch.cuda.get_device_name(), "precision": given.precision, "batch": given.batch, "networks": found}


def _place(module: torch.nn.Module, device: torch.device, dtype: torch.dtype) -> torch.nn.Module:
    return module.to(device, dtype).to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def search_property(evaluator: Evaluator, name: str, *, points: int, resample: bool = False) -> tuple[int, float, int]:
    """Return the queries and seconds of a search, and the number of images that broke."""
    options = KnobOptions(operators=(name,), variant="dsn2020", points=points, resample=resample)
    before, start = evaluator.queries, time.perf_counter()
    columns = evaluator.drive(measure_property(evaluator.shard(), find_property(name, "dsn2020"), options))
    seconds = time.perf_counter() - start
    status = columns["status"]
    assert isinstance(status, Categorical)
    return evaluator.queries - before, seconds, int((status.codes == BROKEN).sum())


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["profile", "search", "runtimes"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--model", default=RESNET)
    parser.add_argument("--images", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--points", type=int, default=50)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--networks", default=",".join(NETWORKS))
    given = parser.parse_args()
    execution = Execution(device=given.device, precision=given.precision, batch=given.batch)
    if given.what == "runtimes":
        print(json.dumps(runtimes(given, execution), indent=1))
        return
    model = brinell.open_model(given.model, execution) if given.eager else open_fastest(given.model, execution)
    facts = {
        "device": torch.cuda.get_device_name() if model.device.type == "cuda" else model.device.type,
        "torch": torch.__version__,
        "model": "ResNet-50" if given.model == RESNET else given.model,
        "precision": given.precision,
        "runtime": model.facts["runtime"],
        "batch": given.batch,
        "images": given.images,
    }
    measure = {"profile": profile, "search": search}[given.what]
    print(json.dumps(facts | measure(model, given, execution), indent=1))


if __name__ == "__main__":
    main()
