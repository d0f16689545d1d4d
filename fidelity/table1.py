"""Table 1 of the ManiFool paper, measured in blocks of images that can be carried out side by side.

    python -m fidelity.table1 --images 1000 --workers 16

A block is a run under runs/fidelity-geometry; one that is there is not measured again.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch

import brinell
from brinell.draws import shuffled
from brinell.models import Model
from fidelity.digits import as_model, digits, trained
from fidelity.measure import ASSETS, ROOT, require_assets

BLOCK = 100
GROUPS = ("translation", "rotation_translation", "scale_translation", "similarity")
RUNS = ROOT / "runs" / "fidelity-geometry"
SEEDS = (0, 1, 2)
LENETS = ("mnist_lenet5_clean", "mnist_lenet5_robust")


@dataclass(frozen=True)
class Block:
    """A hundred of the digits under one network and one setting."""

    network: str
    number: int
    setting: str = "usual"


# as chosen, by both methods; then conventions that the papers leave open, one at a time, on two of the groups
SETTINGS: dict[str, dict[str, Any]] = {
    "usual": {"least": 0.0, "operators": GROUPS},
    "manitest": {"least": 0.0, "operators": GROUPS, "methods": ["manitest"]},
    "wide steps": {"least": 0.02},
    "numerical Jacobian": {"least": 0.0, "jacobian": "numerical"},
    "composed on the left": {"least": 0.0, "composed": "left"},
    "left and numerical": {"least": 0.0, "composed": "left", "jacobian": "numerical"},
    "no backtracking": {"least": 0.0, "backtrack": False},
    "momentum 0": {"least": 0.0, "momentum": 0.0},
    "momentum 0.8": {"least": 0.0, "momentum": 0.8},
    "eta 0.01": {"least": 0.0, "eta": 0.01},
    "eta 0.1": {"least": 0.0, "eta": 0.1},
    "no target dropped": {"least": 0.0, "drop": False},
    "grey fill": {"least": 0.0},
    "test images": {"least": 0.0},
    "first test images": {"least": 0.0},
    "manitest, whole steps": {"least": 0.0, "methods": ["manitest"], "backtrack": False},
    "manitest, steps of 0.25 px": {"least": 0.0, "methods": ["manitest"], "grid_pixels": 0.25},
    "one epoch": {"least": 0.0},
    "three epochs": {"least": 0.0},
}
FEW = ("translation", "similarity")


def model_of(network: str, setting: str) -> Model:
    """The network of a seed, or one of the assets'."""
    torch.set_num_threads(max(1, torch.get_num_threads()))
    if network in LENETS:
        sys.path.insert(0, str(ASSETS / "models"))
        import nets  # type: ignore[import-not-found]

        return as_model(nets.load(network)[0], network)
    epochs = {"one epoch": 1, "three epochs": 3}.get(setting, 2)
    module = trained(ASSETS, int(network.removeprefix("seed")), RUNS / "networks", epochs)
    if setting != "grey fill":
        return as_model(module, network)
    shift = torch.nn.Sequential(_Unnormalised(0.1307, 0.3081), module)  # zeros outside are then the mean of MNIST
    return as_model(shift, network, mean=(0.1307,), std=(0.3081,))


class _Unnormalised(torch.nn.Module):
    def __init__(self, mean: float, std: float) -> None:
        super().__init__()
        self.mean, self.std = mean, std

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images * self.std + self.mean


def measure(block: Block) -> str:
    """Carry out a block, or what is missing of it, and give its folder."""
    folder = RUNS / f"{block.network}-{block.setting.replace(' ', '-')}-{block.number}"
    if not (folder / "done").exists():
        images, labels = digits(ASSETS, "test" if "test images" in block.setting else "train")
        order = range(len(images)) if "first" in block.setting else shuffled(len(images), 13)
        order = order[block.number * BLOCK : (block.number + 1) * BLOCK]
        data = [(images[index], int(labels[index])) for index in order]
        lens = {"name": "geometry", "operators": FEW, "methods": ["manifool"], **SETTINGS[block.setting]}
        model = model_of(block.network, block.setting)
        brinell.run(model, data, lens=lens, out=folder, quiet=True)
        (folder / "done").touch()
    return str(folder)


def blocks(network: str, images: int, setting: str = "usual") -> list[Block]:
    """As many blocks as hold so many images."""
    return [Block(network, number, setting) for number in range(images // BLOCK)]


def carry_out(asked: list[Block], workers: int) -> None:
    """Measure blocks, one after the other or in processes."""
    if workers <= 1:
        for block in asked:
            print(measure(block), flush=True)
        return
    with ProcessPoolExecutor(workers, get_context("spawn"), _alone) as pool:
        for folder in pool.map(measure, asked):
            print(folder, flush=True)


def _alone() -> None:
    torch.set_num_threads(1)


def scores(network: str, setting: str = "usual") -> dict[str, dict[str, np.ndarray]]:
    """By operator: the scores (NaN: not fooled), seconds, queries and gradients of all blocks that are there."""
    found: dict[str, dict[str, list[float]]] = {}
    prefix = f"{network}-{setting.replace(' ', '-')}-"
    folders = sorted(RUNS.glob(f"{prefix}[0-9]*"), key=lambda folder: int(folder.name.removeprefix(prefix)))
    for folder in folders:
        if not (folder / "done").exists():
            continue
        rows = brinell.Run(folder).rows(
            """select operator, score, seconds, queries, gradients, samples.index from rows join samples using (image)
               order by samples.index"""
        )
        for operator, score, *costs, _ in rows.fetchall():
            own = found.setdefault(operator, {"score": [], "seconds": [], "queries": [], "gradients": []})
            own["score"].append(np.nan if score is None else score)
            for name, value in zip(("seconds", "queries", "gradients"), costs, strict=True):
                own[name].append(value)
    return {operator: {name: np.array(v) for name, v in own.items()} for operator, own in found.items()}


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=1000, help="of each training seed")
    parser.add_argument("--others", type=int, default=BLOCK, help="of each setting and each LeNet")
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--workers", type=int, default=1, help="processes, each with one thread")
    given = parser.parse_args()
    require_assets()
    for seed in range(given.seeds):
        trained(ASSETS, seed, RUNS / "networks")
    for epochs in (1, 3):
        trained(ASSETS, 0, RUNS / "networks", epochs)
    both = ("usual", "manitest")
    asked = [b for seed in range(given.seeds) for setting in both for b in blocks(f"seed{seed}", given.images, setting)]
    asked += [block for lenet in LENETS for setting in both for block in blocks(lenet, given.others, setting)]
    settings = [name for name in SETTINGS if name not in both]
    asked += [block for setting in settings for block in blocks("seed0", given.others, setting)]
    carry_out(sorted(asked, key=lambda block: block.number), given.workers)


if __name__ == "__main__":
    main()
