"""Table 1 of the ManiFool paper (CVPR 2018), measured in blocks of images that can run in parallel.

    python -m fidelity.table1 --images 1000 --workers 16

Each block is a JSON file under runs/fidelity-geometry; existing blocks are not repeated. All blocks are summarised in
fidelity/results/table1.json, from which `python -m fidelity.geometry` writes its page; stored figures over more images are
kept.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from brinell.criteria.criterion import find_criterion
from brinell.draws import permutation
from brinell.engine.evaluator import Evaluator
from brinell.engine.threads import torch_alone
from brinell.lenses.geometry.lens import measure as measure_motion
from brinell.lenses.geometry.lens import select_motions
from brinell.lenses.geometry.options import GeometryOptions
from brinell.models.model import Model
from brinell.motion.frames import Frames, Pixels
from fidelity.digits import as_model, digits, train
from fidelity.measure import ASSETS, ROOT
from fidelity.table1_results import compare_methods, measure_change, summarise

BLOCK = 50
GROUPS = ("translation", "rotation_translation", "scale_translation", "similarity")
RUNS = ROOT / "runs" / "fidelity-geometry"
GATHERED = Path(__file__).parent / "results" / "table1.json"
BATCH = 32  # small enough for a core's cache
SEEDS = (0, 1, 2)
LENETS = ("mnist_lenet5_clean", "mnist_lenet5_robust")


@dataclass(frozen=True)
class Block:
    """A block of digits with one network and one setting."""

    network: str
    number: int
    setting: str = "default"


# the default by both methods; then conventions that the papers leave open, changed one at a time, on two of the groups
SETTINGS: dict[str, dict[str, Any]] = {
    "default": {"min_change": 0.0, "operators": GROUPS},
    "manitest": {"min_change": 0.0, "operators": GROUPS, "methods": ["manitest"]},
    "wide steps": {"min_change": 0.02},
    "numerical Jacobian": {"min_change": 0.0, "jacobian": "numerical"},
    "composed on the left": {"min_change": 0.0, "composed": "left"},
    "left and numerical": {"min_change": 0.0, "composed": "left", "jacobian": "numerical"},
    "no backtracking": {"min_change": 0.0, "backtrack": False},
    "momentum 0": {"min_change": 0.0, "momentum": 0.0},
    "momentum 0.8": {"min_change": 0.0, "momentum": 0.8},
    "momentum outside the line search": {"min_change": 0.0, "momentum_inside": False},
    "eta 0.01": {"min_change": 0.0, "eta": 0.01},
    "eta 0.1": {"min_change": 0.0, "eta": 0.1},
    "no target dropped": {"min_change": 0.0, "drop": False},
    "grey fill": {"min_change": 0.0},
    "pixels of 0 to 255": {"min_change": 0.0},
    "centre w/2 + 0.5": {"min_change": 0.0},
    "test images": {"min_change": 0.0},
    "first test images": {"min_change": 0.0},
    "manitest, whole steps": {"min_change": 0.0, "methods": ["manitest"], "backtrack": False},
    "manitest, steps of 0.25 px": {"min_change": 0.0, "methods": ["manitest"], "grid_pixels": 0.25},
    "one epoch": {"min_change": 0.0},
    "three epochs": {"min_change": 0.0},
}
FEW = ("translation", "similarity")
KINDS = ("one epoch", "three epochs", "grey fill", "pixels of 0 to 255")


@cache
def model_of(network: str, kind: str = "default") -> Model:
    """Return the network of a training seed or of the assets; `KINDS` lists the settings that change the network."""
    if network in LENETS:
        sys.path.insert(0, str(ASSETS / "models"))
        import nets  # type: ignore[import-not-found]

        return as_model(nets.load(network)[0], network)
    epochs = {"one epoch": 1, "three epochs": 3}.get(kind, 2)
    module = train(ASSETS, int(network.removeprefix("seed")), RUNS / "networks", epochs)
    # with the mean of MNIST subtracted, zeros outside the frame are grey
    scales = {"grey fill": (0.1307, 0.3081), "pixels of 0 to 255": (0.0, 1 / 255)}
    if kind not in scales:
        return as_model(module, network)
    mean, std = scales[kind]
    return as_model(torch.nn.Sequential(_Unnormalised(mean, std), module), network, mean=(mean,), std=(std,))


class _Unnormalised(torch.nn.Module):
    def __init__(self, mean: float, std: float) -> None:
        super().__init__()
        self.mean, self.std = mean, std

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images * self.std + self.mean


@contextmanager
def _off_centre(active: bool) -> Iterator[None]:
    """Shift the centre of frames by a pixel to the right and down, as in the published scripts."""
    original = Frames.of

    def shifted(images: torch.Tensor, sizes: torch.Tensor | None = None) -> Frames:
        frames = original(images, sizes)
        return replace(frames, pixels=Pixels(frames.pixels.x - 1, frames.pixels.y - 1), corners=frames.corners - 1)

    try:
        if active:
            Frames.of = staticmethod(shifted)  # type: ignore[method-assign]
        yield
    finally:
        Frames.of = staticmethod(original)  # type: ignore[method-assign]


def measure(block: Block) -> str:
    """Measure a block unless its file exists, and return the name of the file."""
    file = RUNS / f"{_prefix(block.network, block.setting)}{block.number}.json"
    if not file.exists():
        images, labels = _digits("test" if "test images" in block.setting else "train")
        order = range(len(images)) if "first" in block.setting else permutation(len(images), 13)
        rows = torch.tensor(order[block.number * BLOCK : (block.number + 1) * BLOCK])
        model, criterion = model_of(block.network, _kind(block)), find_criterion("misclassification")
        options = GeometryOptions(**{"operators": FEW, "methods": ("manifool",), **SETTINGS[block.setting]})
        found = {}
        for search in select_motions(options):
            evaluator = Evaluator.of(model, images[rows], rows, labels[rows], criterion=criterion, seed=0, batch=BATCH)
            shard, began = evaluator.shard(), time.process_time()
            with torch_alone(), _off_centre(block.setting.startswith("centre")):
                columns: Any = evaluator.drive(measure_motion(shard, search, options))
            seconds = (time.process_time() - began) / len(rows)  # of one core
            known = zip(columns["score"].values.tolist(), columns["score"].valid.tolist(), strict=True)
            found[search.id] = {
                "score": [value if there else None for value, there in known],
                "seconds": [seconds] * len(rows),
                **{name: columns[name].tolist() for name in ("queries", "gradients")},
            }
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(found) + "\n", encoding="utf-8")
    return file.name


@cache
def _digits(part: str) -> tuple[torch.Tensor, torch.Tensor]:
    return digits(ASSETS, part)


def _kind(block: Block) -> str:
    return block.setting if block.setting in KINDS else "default"


def _prefix(network: str, setting: str) -> str:
    return f"{network}-{setting.replace(' ', '-').replace('/', '')}-"


def blocks(network: str, images: int, setting: str = "default") -> list[Block]:
    """Return the blocks of a number of images."""
    return [Block(network, number, setting) for number in range(images // BLOCK)]


def run_blocks(wanted: list[Block], workers: int, until: float) -> None:
    """Measure blocks, sequentially or in processes, until the time is up, and store the summary."""
    began = time.perf_counter()
    for done, name in enumerate(_measure_all(wanted, workers, until), 1):
        print(f"{done} of {len(wanted)} after {time.perf_counter() - began:.0f} s: {name}", flush=True)
    stored = json.loads(GATHERED.read_text(encoding="utf-8")) if GATHERED.exists() else {}
    GATHERED.parent.mkdir(exist_ok=True)
    GATHERED.write_text(json.dumps(merge_results(stored, gather()), indent=1) + "\n", encoding="utf-8")


def merge_results(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Merge results: of figures in both, keep those over more images, or the second if equal."""
    if "images" in second:
        return first if first.get("images", 0) > second["images"] else second
    return first | {name: merge_results(first.get(name, {}), own) for name, own in second.items()}


def _measure_all(wanted: list[Block], workers: int, until: float) -> Iterable[str]:
    """Yield the files of blocks; none starts after a time."""
    if workers <= 1:
        yield from (measure(block) for block in wanted if time.perf_counter() < until)
        return
    os.environ["OMP_NUM_THREADS"] = "1"  # of each process
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        waiting = [pool.submit(measure, block) for block in wanted]
        for block in as_completed(waiting):
            if not block.cancelled():
                yield block.result()
            if time.perf_counter() > until:
                for other in waiting:
                    other.cancel()


def scores(network: str, setting: str = "default") -> dict[str, dict[str, np.ndarray]]:
    """Return the scores (NaN: not fooled), seconds, queries and gradients of all existing blocks, by operator."""
    found: dict[str, dict[str, list[float]]] = {}
    prefix = _prefix(network, setting)
    files = sorted(RUNS.glob(f"{prefix}[0-9]*.json"), key=lambda file: int(file.stem.removeprefix(prefix)))
    for file in files:
        for operator, columns in json.loads(file.read_text(encoding="utf-8")).items():
            own = found.setdefault(operator, {name: [] for name in columns})
            for name, values in columns.items():
                own[name] += [np.nan if value is None else value for value in values]
    return {operator: {name: np.array(v) for name, v in own.items()} for operator, own in found.items()}


def gather() -> dict[str, Any]:
    """Return the results of all blocks, as plain data."""
    networks = [f"seed{seed}" for seed in SEEDS] + list(LENETS)
    found = {network: scores(network) | scores(network, "manitest") for network in networks}
    table = {
        network: {operator: summarise(own) for operator, own in both.items()} for network, both in found.items() if both
    }
    settings = {}
    for setting in SETTINGS:
        own, base = scores("seed0", setting), found["seed0"]
        if setting not in ("default", "manitest") and own:
            settings[setting] = {
                operator: measure_change(columns["score"], base[operator]["score"], paired="test images" not in setting)
                for operator, columns in own.items()
                if operator in base
            }
    seeds = [found[f"seed{seed}"] for seed in SEEDS]
    return {"table": table, "settings": settings, "compared": compare_methods(seeds, GROUPS)}


def main() -> None:
    """Measure the requested blocks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=1000, help="images per training seed, by ManiFool")
    parser.add_argument("--marched", type=int, help="images per training seed, by Manitest (default: the same)")
    parser.add_argument("--others", type=int, default=100, help="images per setting and LeNet")
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--workers", type=int, default=1, help="processes, each with one thread")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no block starts after this time")
    given = parser.parse_args()
    if not (ASSETS / "images" / "mnist_train.npz").exists():
        raise SystemExit("MNIST not found; set BRINELL_ASSETS to the folder of test assets")
    until = time.perf_counter() + given.seconds
    seeds = [f"seed{seed}" for seed in range(given.seeds)]
    sizes = {"default": given.images, "manitest": given.images if given.marched is None else given.marched}
    wanted = [block for seed in seeds for setting, size in sizes.items() for block in blocks(seed, size, setting)]
    wanted += [block for lenet in LENETS for setting in sizes for block in blocks(lenet, given.others, setting)]
    others = [name for name in SETTINGS if name not in sizes] if given.seeds else []
    wanted += [block for setting in others for block in blocks("seed0", given.others, setting)]
    _train(wanted, given.workers)
    run_blocks(sorted(wanted, key=lambda block: (block.number, "manitest" not in block.setting)), given.workers, until)


def _train(wanted: list[Block], workers: int) -> None:
    """Train the networks of blocks that don't exist yet."""
    epochs = {block: block.setting if "epoch" in block.setting else "default" for block in wanted}
    networks = {(block.network, kind) for block, kind in epochs.items() if block.network not in LENETS}
    if workers <= 1 or not networks:
        for network, kind in sorted(networks):
            model_of(network, kind)
        return
    os.environ["OMP_NUM_THREADS"] = str(max(1, workers // len(networks)))
    with ProcessPoolExecutor(len(networks), get_context("spawn")) as pool:
        for done in [pool.submit(_train_one, network, kind) for network, kind in sorted(networks)]:
            done.result()


def _train_one(network: str, kind: str) -> None:
    model_of(network, kind)


if __name__ == "__main__":
    main()
