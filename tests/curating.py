"""Models that break easily, and helpers that run them and curate their failures."""

from __future__ import annotations

import filecmp
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import brinell
from conftest import PLAIN

CLASSES = ("light", "dark", "red", "blue")


class Moody(nn.Module):
    """Scores that every change of the image affects."""

    def __init__(self, seed: int = 3) -> None:
        super().__init__()
        weights = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(seed))
        self.weights = nn.Parameter(weights - weights.mean((1, 2, 3), keepdim=True))

    def forward(self, images: Tensor) -> Tensor:
        small = nn.functional.adaptive_avg_pool2d(images, 32)
        scores: Tensor = torch.einsum("nchw,kchw->nk", small, self.weights) / 2
        return scores


class Band(nn.Module):
    """Answers "light", unless the mean grey is between two values."""

    def __init__(self, low: float, high: float) -> None:
        super().__init__()
        self.low, self.high = low, high
        self.weight = nn.Parameter(torch.tensor([low, high]))  # so that fingerprints differ

    def forward(self, images: Tensor) -> Tensor:
        grey = images.mean((1, 2, 3))
        inside = ((grey > self.low) & (grey < self.high)).float()
        return torch.stack([1 - inside, inside], 1) * 4


def moody(name: str = "moody", seed: int = 3, size: int = 32) -> brinell.Model:
    return brinell.wrap(Moody(seed), size=size, classes=CLASSES, name=name, execution=PLAIN)


def band(name: str, low: float, high: float) -> brinell.Model:
    return brinell.wrap(Band(low, high), size=32, classes=("light", "dark"), name=name, execution=PLAIN)


def measured(model: Any, data: Any, out: Path, **options: Any) -> brinell.Run:
    seed = options.pop("seed", 0)
    lens = {"name": "profile", **options}
    return brinell.run(model, data, lens=lens, out=out, execution=PLAIN, seed=seed, quiet=True)


def curated(runs: Any, out: Path, **options: Any) -> list[dict[str, Any]]:
    given = {key: options.pop(key) for key in ("data", "models") if key in options}
    brinell.curate(runs, out, options, execution=PLAIN, quiet=True, **given)
    return [json.loads(line) for line in (out / "metadata.jsonl").read_text().splitlines()]


def same_files(one: Path, two: Path) -> bool:
    names = sorted(str(path.relative_to(one)) for path in one.rglob("*") if path.is_file())
    assert names == sorted(str(path.relative_to(two)) for path in two.rglob("*") if path.is_file())
    return filecmp.cmpfiles(one, two, names, shallow=False)[0] == names
