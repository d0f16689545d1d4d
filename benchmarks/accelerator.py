"""On a CUDA device: a ResNet-50 in bf16 at batch 512 (random weights; speed doesn't depend on them)."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

import numpy as np
import torch

import brinell
from benchmarks.end_to_end import accelerator_bare, one_round, operators, summary
from brinell.execution import Execution


def pictures(count: int) -> list[tuple[np.ndarray, None]]:
    """Different smooth pictures with grain, 224x224."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(count, 3, 7, 7, generator=generator) * 255
    smooth = torch.nn.functional.interpolate(coarse, (224, 224), mode="bicubic")
    grain = torch.randint(-12, 13, smooth.shape, generator=generator)
    images = (smooth + grain).clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).numpy()
    return [(image, None) for image in images]


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=2048)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--operator", action="append")
    given = parser.parse_args()
    execution = Execution(
        device="cuda", precision=given.precision, batch=given.batch, shard=given.images, compile=given.compile
    )
    model = brinell.open_model("torchvision:resnet50?pretrained=false", execution)
    data = pictures(given.images)
    bare = accelerator_bare(model, given.batch)
    rounds = []
    for operator in given.operator or operators():
        rounds.append(one_round(model, data, operator, execution, bare, given.seconds))
        last = rounds[-1]
        print(
            f"{operator:18s} bare {last.bare:7.0f}/s  measuring {last.measuring:7.0f}/s = {last.ratio:.3f}", file=sys.stderr
        )
    found = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "precision": given.precision}
    found |= {"batch": given.batch, "compiled": given.compile, "images": given.images}
    print(json.dumps({**found, **summary(rounds), "rounds": [asdict(r) | {"ratio": r.ratio} for r in rounds]}, indent=1))


if __name__ == "__main__":
    main()
