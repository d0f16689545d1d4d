"""The geometry lens: seconds an image for each group and method on digits, and how that grows; on accelerators a ResNet-50.

python -m benchmarks geometry
python -m benchmarks.geometry --device cuda > benchmarks/results/geometry_accelerator.json
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import torch
from torch import Tensor, nn

import brinell
from brinell.criteria import find_criterion
from brinell.engine.bench import Bench
from brinell.engine.threads import CORES, torch_alone
from brinell.execution import Execution
from brinell.geometry import GROUPS
from brinell.lenses import GeometryOptions, MotionSearch
from brinell.lenses.geometry import geometry
from brinell.models import Model

IMAGES = 32
# the paper's seconds an image, by ManiFool and by Manitest
TABLE = {
    "translation": (2.6, 2.7),
    "rotation_translation": (3.6, 23.9),
    "scale_translation": (6.2, 34.6),
    "similarity": (3.1, 29.5),
}


def measure(images: int = IMAGES) -> dict[str, Any]:
    """Seconds an image by group and method beside the paper's, and the growth with dimensions, images and classes."""
    from fidelity.digits import as_model, digits, network
    from fidelity.measure import ASSETS, require_assets
    from fidelity.table1 import RUNS

    require_assets()
    kept = RUNS / "networks" / "digits-0-2.pt"
    module = network(0)
    if kept.exists():
        module.load_state_dict(torch.load(kept, weights_only=True))
    model = as_model(module.eval(), "digits")
    pictures, _ = digits(ASSETS, "train")
    table = []
    for name, published in TABLE.items():
        for method, paper in zip(("manifool", "manitest"), published, strict=True):
            took = seconds(model, pictures[:images], name, method)
            table.append({"group": name, "method": method, "seconds": took, "paper": paper, "times": paper / took})
    dimensions = [
        {"group": name, "dimension": GROUPS[name].dimension, "seconds": seconds(model, pictures[:images], name, "manifool")}
        for name in ("rotation", "translation", "rotation_translation", "similarity", "affine", "projective")
    ]
    grows = [
        {"images": count, "seconds": count * seconds(model, pictures[:count], "similarity", "manifool")}
        for count in (4, 16, 64)
    ]
    targets = [
        {"targets": count, "seconds": seconds(model, pictures[:images], "similarity", "manifool", targets=count)}
        for count in (1, 3, 9)
    ]
    whole = {"cores": CORES, "images": images, "trained": kept.exists()}
    return {**whole, "table": table, "dimensions": dimensions, "grows": grows, "targets": targets}


def seconds(model: Model, images: Tensor, group: str, method: Any, **options: Any) -> float:
    """What one image takes, among all of them."""
    canvases = model.preprocess.canvases(images)
    labels = torch.zeros(len(images), dtype=torch.int64)
    asked = GeometryOptions(operators=(group,), methods=(method,), least=0.0, **options)
    with torch_alone():
        bench = Bench(
            model,
            canvases,
            torch.arange(len(images)),
            labels,
            criterion=find_criterion("misclassification"),
            seed=0,
            batch=256 if images.shape[-1] < 64 else 32,
        )
        bench.stage  # noqa: B018  # made once, before the clock
        began = time.perf_counter()
        bench.drive(geometry(bench.shard(), MotionSearch(GROUPS[group], method), asked))
        return (time.perf_counter() - began) / len(images)


def accelerated(device: str, images: int) -> dict[str, Any]:
    """Images a second of ManiFool and of random motions with a ResNet-50 at 224, similarity and affine."""
    model = _resnet(device)
    x = torch.arange(224, dtype=torch.float64)
    phase = torch.arange(images, dtype=torch.float64)[:, None, None, None]
    waves = [
        torch.sin((0.05 + 0.01 * channel) * x[:, None] + phase) * torch.cos((0.07 + 0.02 * channel) * x + 2 * phase)
        for channel in range(3)
    ]
    pictures = (127.5 + 120 * torch.cat(waves, 1)).to(torch.uint8)
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(0) if device != "cpu" else "cpu", "images": images}
    seconds(model, pictures[:2], "similarity", "manifool", most_steps=2)  # a first look
    for group in ("similarity", "affine"):
        for method in ("manifool", "random"):
            found[f"{group} {method}"] = 1 / seconds(model, pictures, group, method)
    return found


def _resnet(device: str) -> Model:
    """A ResNet-50; its weights make no difference to its speed, so that any will do."""
    try:
        from torchvision.models import resnet50

        module: nn.Module = resnet50(weights=None)
    except ImportError:
        import timm

        module = timm.create_model("resnet50", pretrained=False)
    return brinell.wrap(
        module, size=224, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), execution=Execution(device=device)
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--images", type=int, default=64)
    given = parser.parse_args()
    print(json.dumps(accelerated(given.device, given.images), indent=1))
