"""Speed on a CUDA device: a ResNet-50 in bf16 with batch size 512 (random weights; speed doesn't depend on them).

python -m benchmarks.accelerator profile > benchmarks/results/accelerator.json
python -m benchmarks.accelerator search > benchmarks/results/accelerator_search.json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
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
from brinell.models.model import Model
from brinell.perturb.property import find_property, property_names

RESNET = "torchvision:resnet50?pretrained=false"


def pictures(count: int) -> list[tuple[np.ndarray, None]]:
    """Return different smooth 224x224 images with grain."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(count, 3, 7, 7, generator=generator) * 255
    smooth = torch.nn.functional.interpolate(coarse, (224, 224), mode="bicubic")
    grain = torch.randint(-12, 13, smooth.shape, generator=generator)
    images = (smooth + grain).clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).numpy()
    return [(image, None) for image in images]


def bare_model(model: Model, batch: int) -> Callable[[], int]:
    """Return a function that runs the module alone on a normalised batch on the device, ten times without waiting."""
    pre = model.preprocess
    plain = torch.full((batch, pre.channels, pre.height, pre.width), 128, dtype=torch.uint8, device=model.device)
    images = pre.normalise(plain)

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
    before = per_second(bare, 1.0)
    search_property(evaluator, "brightness", points=2)  # warms up
    for name in property_names():
        queries, seconds, broken = search_property(evaluator, name, points=given.points)
        after = per_second(bare, 1.0)
        rate = (before + after) / 2
        rates[name], broke[name] = queries / seconds / rate, broken / len(images)
        spent, alone, before = spent + seconds, alone + queries / rate, after
    return {"bare": before, "ratio": alone / spent, "points": given.points, "properties": rates, "broken": broke}


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
    parser.add_argument("what", choices=["profile", "search"])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--model", default=RESNET)
    parser.add_argument("--images", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--points", type=int, default=50)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    execution = Execution(device=given.device, precision=given.precision, batch=given.batch, compile=given.compile)
    model = brinell.open_model(given.model, execution)
    facts = {
        "device": torch.cuda.get_device_name() if model.device.type == "cuda" else model.device.type,
        "torch": torch.__version__,
        "model": "ResNet-50" if given.model == RESNET else given.model,
        "precision": given.precision + (", compiled" if given.compile else ""),
        "batch": given.batch,
        "images": given.images,
    }
    measure = {"profile": profile, "search": search}[given.what]
    print(json.dumps(facts | measure(model, given, execution), indent=1))


if __name__ == "__main__":
    main()
