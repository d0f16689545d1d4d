"""On a CUDA device: a ResNet-50 in bf16 at batch 512 (random weights; speed doesn't depend on them)."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

import numpy as np
import torch

import brinell
from benchmarks.end_to_end import one_round, operators, summary
from brinell.execution import Execution
from brinell.models import Model


def pictures(count: int) -> list[tuple[np.ndarray, None]]:
    """Different smooth pictures with grain, 224x224."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(count, 3, 7, 7, generator=generator) * 255
    smooth = torch.nn.functional.interpolate(coarse, (224, 224), mode="bicubic")
    grain = torch.randint(-12, 13, smooth.shape, generator=generator)
    images = (smooth + grain).clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).numpy()
    return [(image, None) for image in images]


def bare_model(model: Model, batch: int) -> Callable[[], int]:
    """The module alone on one normalised batch that lies on the device, ten times without waiting."""
    pre = model.preprocess
    plain = torch.full((batch, pre.channels, pre.height, pre.width), 128, dtype=torch.uint8, device=model.device)
    images = pre.normalise(plain)

    def ask() -> int:
        with torch.inference_mode():
            for _ in range(10):
                answer = model.forward(images)
            answer[0, 0].item()  # waits for the device
        return 10 * batch

    ask()
    return ask


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    execution = Execution(device="cuda", precision=given.precision, batch=given.batch, compile=given.compile)
    model = brinell.open_model("torchvision:resnet50?pretrained=false", execution)
    data = pictures(given.images)
    bare = bare_model(model, given.batch)
    rounds = [one_round(model, data, operators(), execution, bare, 2.0) for _ in range(given.rounds)]
    facts = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "model": "ResNet-50",
        "precision": given.precision + (", compiled" if given.compile else ""),
        "batch": given.batch,
        "images": given.images,
    }
    print(json.dumps(facts | summary(rounds), indent=1))


if __name__ == "__main__":
    main()
