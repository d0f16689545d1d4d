"""The geometry lens: seconds per image for each group and method on digits, and their growth; a ResNet-50 on accelerators.

python -m benchmarks geometry
python -m benchmarks.geometry --device cuda

The second command updates benchmarks/results/geometry_accelerator.json as it goes, and stops after --seconds.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fidelity.measure import IMAGES as PHOTOGRAPHS
from PIL import Image
from torch import Tensor, nn

import brinell
from benchmarks.accelerator import bare_model
from benchmarks.end_to_end import per_second
from brinell.config.execution import Execution
from brinell.criteria.criterion import find_criterion
from brinell.engine.evaluator import Evaluator
from brinell.engine.threads import CORES, torch_alone
from brinell.engine.units import WIDE
from brinell.lenses.geometry.lens import measure as measure_motion
from brinell.lenses.geometry.options import GeometryOptions
from brinell.lenses.method import Done, Task
from brinell.lenses.outcomes import BROKEN
from brinell.models.compile_choice import expecting
from brinell.models.device import select_device
from brinell.models.model import Model
from brinell.motion.groups import GROUPS
from brinell.perturb.motion import Motion

IMAGES = 64
BATCH, GRADIENTS = 512, 128  # images of a batch of the network alone on an accelerator, and of its gradients
RANDOM = 100  # queries of random motions for each image
PASSES = 1100  # per image, of all that is measured on an accelerator: a run would know as much of itself
RESULTS = Path(__file__).parent / "results" / "geometry_accelerator.json"
# seconds per image in the paper (ManiFool, CVPR 2018), by ManiFool and by Manitest
TABLE = {
    "translation": (2.6, 2.7),
    "rotation_translation": (3.6, 23.9),
    "scale_translation": (6.2, 34.6),
    "similarity": (3.1, 29.5),
}


def measure(images: int = IMAGES) -> dict[str, Any]:
    """Measure seconds per image by group and method, and their growth with dimensions, images and classes."""
    from fidelity.digits import as_model, digits, train
    from fidelity.measure import ASSETS, require_assets
    from fidelity.table1 import RUNS

    require_assets()
    model = as_model(train(ASSETS, 0, RUNS / "networks"), "digits")
    pictures = digits(ASSETS, "train")[0][: max(images, 128)]
    whole: dict[str, Any] = {"cores": CORES, "images": images}
    search(model, pictures[:4], "translation", "manifool")  # warms up
    table = []
    for name, published in TABLE.items():
        for method, paper in zip(("manifool", "manitest"), published, strict=True):
            own = search(model, pictures[:images], name, method)
            table.append({"group": name, "method": method, **own, "paper": paper, "times": paper / own["seconds"]})
    whole["table"] = table
    whole["dimensions"] = [
        {"group": name, "dimension": GROUPS[name].dimension, **search(model, pictures[:images], name, "manifool")}
        for name in ("rotation", "translation", "rotation_translation", "similarity", "affine", "projective")
    ]
    whole["grows"] = [
        {"number": count, **search(model, pictures[:count], "similarity", "manifool")} for count in (1, 4, 16, 64, 128)
    ]
    whole["targets"] = [
        {"targets": count, **search(model, pictures[:images], "similarity", "manifool", targets=count)}
        for count in (1, 3, 9)
    ]
    return whole


def search(model: Model, images: Tensor, group: str, method: Any, **options: Any) -> dict[str, float]:
    """Return the cost per image (seconds, CPU time, queries, gradients) and the share of changed labels."""
    small = images.shape[-1] < 64
    labels = torch.zeros(len(images), dtype=torch.int64)
    min_change = 0.0 if small else 0.02
    chosen = GeometryOptions(operators=(group,), methods=(method,), min_change=min_change, retry=0, **options)
    with torch_alone():
        evaluator = Evaluator.of(
            model,
            model.preprocess.inputs(images),
            torch.arange(len(images)),
            labels,
            criterion=find_criterion("misclassification"),
            seed=0,
            batch=32 if small else 128,
            originals=[] if small else list(images),
        )
        shard = evaluator.shard()
        evaluator.stage  # noqa: B018  # created before the clock starts
        spent = _time_tasks(evaluator)
        began, before = time.perf_counter(), time.process_time()
        rows: Any = evaluator.drive(measure_motion(shard, Motion(GROUPS[group], method, searching=True), chosen))
        took, worked = time.perf_counter() - began, time.process_time() - before
    found = {"seconds": took / len(images), "processor": worked / len(images)}
    found |= {f"seconds of {name}": seconds / len(images) for name, seconds in spent.items()}
    found |= {"changed": float((rows["status"].codes == BROKEN).float().mean())}
    return found | {name: float(rows[name].float().mean()) for name in ("queries", "gradients") if name in rows}


def _time_tasks(evaluator: Evaluator) -> dict[str, float]:
    """Return what will hold the seconds of tasks, by the functions that made them; the rest is the search on the host."""
    spent: dict[str, float] = defaultdict(float)
    run = evaluator.run

    def timed(*tasks: Task) -> list[Done]:
        began = time.perf_counter()
        done = run(*tasks)
        spent[" and ".join(_maker(task) for task in tasks)] += time.perf_counter() - began
        return done

    evaluator.run = timed  # type: ignore[method-assign]
    return spent


def _maker(task: Task) -> str:
    """Return the name of the function that made a task."""
    name: str = getattr(task.do, "func", task.do).__qualname__
    return name.split(".<locals>")[0]


def measure_on_accelerator(execution: Execution, images: int, block: int, budget: float) -> dict[str, Any]:
    """Measure images per second of ManiFool and of random motions with a ResNet-50 at 224, similarity and affine.

    Images are processed in blocks of the size of a run's units; a search that has used its share of the `budget` of seconds
    starts no further block.
    """
    began = time.perf_counter()
    pictures = _pictures(images)
    images = len(pictures)
    model = _resnet(execution, pictures, PASSES * images)
    name = torch.cuda.get_device_name(0) if model.device.type == "cuda" else model.device.type
    found: dict[str, Any] = {"device": name, "precision": execution.precision, "block": block}
    found["pictures"] = "photographs" if _has_photographs() else "waves"
    found["runtime"] = model.facts["runtime"]
    found["bare"], found["gradients"] = per_second(bare_model(model, BATCH), 2.0), per_second(_bare_gradient(model), 2.0)
    for method in ("manifool", "random"):  # warms up
        search(model, pictures[:2], "similarity", method, **({"max_steps": 2} if method == "manifool" else {}))
    print(f"ready after {time.perf_counter() - began:.1f} s", flush=True)
    searches = [(group, method) for group in ("similarity", "affine") for method in ("manifool", "random")]
    for left, (group, method) in zip(range(len(searches), 0, -1), searches, strict=True):
        share = (budget - (time.perf_counter() - began)) / left
        blocks: list[tuple[int, dict[str, float]]] = []
        took = 0.0
        for some in torch.split(pictures, block):
            if took and took * (1 + 1 / len(blocks)) > share:
                break
            blocks.append((len(some), search(model, some, group, method)))
            took += len(some) * blocks[-1][1]["seconds"]
            done = sum(count for count, _ in blocks)
            means = {key: sum(count * own.get(key, 0.0) for count, own in blocks) / done for key in blocks[0][1]}
            alone = means.get("queries", RANDOM) / found["bare"] + means.get("gradients", 0.0) / found["gradients"]
            found[f"{group} {method}"] = {"images": done, "rate": done / took, "ratio": alone * done / took, **means}
            RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            print(f"{group} {method}: {done} images in {took:.1f} s, {found[f'{group} {method}']}", flush=True)
    return found


def _bare_gradient(model: Model) -> Callable[[], int]:
    """Return a function that computes the gradients of a batch's scores, with the network's forward passes alone."""
    pre, network = model.preprocess, model.differentiable
    assert network is not None
    images = torch.full((GRADIENTS, pre.channels, pre.height, pre.width), 0.5, device=model.device)

    def query() -> int:
        pixels = images.detach().requires_grad_()
        with model.own_precision():
            torch.autograd.grad(network(pixels).sum(), pixels)[0][0, 0, 0, 0].item()  # waits for the device
        return GRADIENTS

    query()
    return query


def _has_photographs() -> bool:
    return PHOTOGRAPHS.is_dir()


def _pictures(count: int) -> Tensor:
    """Return photographs of the test assets, or waves if there are none; uint8 (N, 3, 256, 256)."""
    if _has_photographs():
        files = sorted(PHOTOGRAPHS.glob("*.png"))[:count]
        photographs = [np.array(Image.open(file).convert("RGB").resize((256, 256))) for file in files]
        return torch.from_numpy(np.stack(photographs)).permute(0, 3, 1, 2).contiguous()
    x, phase = torch.arange(256, dtype=torch.float64), torch.arange(count, dtype=torch.float64)[:, None, None, None]
    waves = [
        torch.sin((0.05 + 0.01 * channel) * x[:, None] + phase) * torch.cos((0.07 + 0.02 * channel) * x + 2 * phase)
        for channel in range(3)
    ]
    return (127.5 + 120 * torch.cat(waves, 1)).to(torch.uint8)


class _Coarse(nn.Module):
    """A network whose input is reduced to a 14x14 mosaic: its labels hold for about ten steps, like trained networks'."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        mosaic = nn.functional.adaptive_avg_pool2d(images, 14)
        scores: Tensor = self.network(nn.functional.interpolate(mosaic, images.shape[2:], mode="bilinear"))
        return scores


def _resnet(execution: Execution, pictures: Tensor, passes: int = 0) -> Model:
    """Return a ResNet-50 with random weights that distinguishes the images: each is a class, scored by similar features.

    It runs in the way that a run of so many `passes` would choose.

    Batch norms use the statistics of the images. Other random classes would not show how long a search takes: either no
    motion changes a label, or any does.
    """
    try:
        from torchvision.models import resnet50

        torch.manual_seed(0)
        module: nn.Module = resnet50(weights=None)
    except ImportError:
        import timm

        torch.manual_seed(0)
        module = timm.create_model("resnet50", pretrained=False)
    device = select_device(execution)
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    some = pictures[:32, :, 16:240, 16:240].to(device) / 255
    some = (some - torch.tensor(mean, device=device)[:, None, None]) / torch.tensor(std, device=device)[:, None, None]
    module = _Coarse(module).to(device).train()
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = None  # the mean over all batches
    last = module.get_submodule("network.fc")
    assert isinstance(last, nn.Linear)
    features: list[Tensor] = []
    last.register_forward_pre_hook(lambda _, inputs: features.append(inputs[0]))
    with torch.no_grad():
        module(some)
        module.eval()(some)
        own = features[-1] - features[-1].mean(0)
        last.weight.zero_()
        last.weight[: len(own)] = own / own.norm(dim=1, keepdim=True)
        last.bias.fill_(-1e3)
        last.bias[: len(own)] = -(last.weight[: len(own)] @ features[-1].mean(0))
    last._forward_pre_hooks.clear()
    with expecting(passes, None):
        return brinell.wrap(module, size=224, short_side=256, mean=mean, std=std, execution=execution)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--precision", default="tf32", choices=["fp32", "tf32", "bf16"])
    parser.add_argument("--images", type=int, default=WIDE)
    parser.add_argument("--block", type=int, default=WIDE, help="images processed together")
    parser.add_argument("--seconds", type=float, default=120)
    given = parser.parse_args()
    execution = Execution(device=given.device, precision=given.precision)
    measure_on_accelerator(execution, given.images, given.block, given.seconds)
