"""Table 1 of the ManiFool paper, measured in blocks of images that can be carried out side by side.

    python -m fidelity.table1 --images 1000 --workers 16

A block is a JSON file under runs/fidelity-geometry; one that is there is not measured again. What all blocks say is
gathered in fidelity/results/table1.json, which `python -m fidelity.geometry` makes its page of; figures of more images that
are there already stay.
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
from fidelity.digits import as_model, digits, trained
from fidelity.measure import ASSETS, ROOT

BLOCK = 50
GROUPS = ("translation", "rotation_translation", "scale_translation", "similarity")
RUNS = ROOT / "runs" / "fidelity-geometry"
GATHERED = Path(__file__).parent / "results" / "table1.json"
BATCH = 32  # small enough for a core's cache
SEEDS = (0, 1, 2)
LENETS = ("mnist_lenet5_clean", "mnist_lenet5_robust")


@dataclass(frozen=True)
class Block:
    """Some of the digits under one network and one setting."""

    network: str
    number: int
    setting: str = "usual"


# as chosen, by both methods; then conventions that the papers leave open, one at a time, on two of the groups
SETTINGS: dict[str, dict[str, Any]] = {
    "usual": {"min_change": 0.0, "operators": GROUPS},
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
def model_of(network: str, kind: str = "usual") -> Model:
    """The network of a seed, or one of the assets'; one of another `KINDS`, where a setting is about that."""
    if network in LENETS:
        sys.path.insert(0, str(ASSETS / "models"))
        import nets  # type: ignore[import-not-found]

        return as_model(nets.load(network)[0], network)
    epochs = {"one epoch": 1, "three epochs": 3}.get(kind, 2)
    module = trained(ASSETS, int(network.removeprefix("seed")), RUNS / "networks", epochs)
    # zeros outside are the mean of MNIST, where that is taken away
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
def _off_centre(asked: bool) -> Iterator[None]:
    """Frames whose middle is a pixel further right and down, as the published scripts have it."""
    usual = Frames.of

    def moved(images: torch.Tensor, sizes: torch.Tensor | None = None) -> Frames:
        frames = usual(images, sizes)
        return replace(frames, pixels=Pixels(frames.pixels.x - 1, frames.pixels.y - 1), corners=frames.corners - 1)

    try:
        if asked:
            Frames.of = staticmethod(moved)  # type: ignore[method-assign]
        yield
    finally:
        Frames.of = staticmethod(usual)  # type: ignore[method-assign]


def measure(block: Block) -> str:
    """Carry out a block, unless it is there, and give its file."""
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
    return block.setting if block.setting in KINDS else "usual"


def _prefix(network: str, setting: str) -> str:
    return f"{network}-{setting.replace(' ', '-').replace('/', '')}-"


def blocks(network: str, images: int, setting: str = "usual") -> list[Block]:
    """As many blocks as hold so many images."""
    return [Block(network, number, setting) for number in range(images // BLOCK)]


def carry_out(asked: list[Block], workers: int, until: float) -> None:
    """Measure blocks, one after the other or in processes, as long as there is time, and gather them."""
    began = time.perf_counter()
    for done, name in enumerate(_measured(asked, workers, until), 1):
        print(f"{done} of {len(asked)} after {time.perf_counter() - began:.0f} s: {name}", flush=True)
    kept = json.loads(GATHERED.read_text(encoding="utf-8")) if GATHERED.exists() else {}
    GATHERED.parent.mkdir(exist_ok=True)
    GATHERED.write_text(json.dumps(fuller(kept, gathered()), indent=1) + "\n", encoding="utf-8")


def fuller(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Of figures that both have, those of more images, the second where they have as many; and all that one of them has."""
    if "images" in second:
        return first if first.get("images", 0) > second["images"] else second
    return first | {name: fuller(first.get(name, {}), own) for name, own in second.items()}


def _measured(asked: list[Block], workers: int, until: float) -> Iterable[str]:
    """Files of blocks; none is begun after a time."""
    if workers <= 1:
        yield from (measure(block) for block in asked if time.perf_counter() < until)
        return
    os.environ["OMP_NUM_THREADS"] = "1"  # of each process
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        waiting = [pool.submit(measure, block) for block in asked]
        for block in as_completed(waiting):
            if not block.cancelled():
                yield block.result()
            if time.perf_counter() > until:
                for other in waiting:
                    other.cancel()


def scores(network: str, setting: str = "usual") -> dict[str, dict[str, np.ndarray]]:
    """By operator: the scores (NaN: not fooled), seconds, queries and gradients of all blocks that are there."""
    found: dict[str, dict[str, list[float]]] = {}
    prefix = _prefix(network, setting)
    files = sorted(RUNS.glob(f"{prefix}[0-9]*.json"), key=lambda file: int(file.stem.removeprefix(prefix)))
    for file in files:
        for operator, columns in json.loads(file.read_text(encoding="utf-8")).items():
            own = found.setdefault(operator, {name: [] for name in columns})
            for name, values in columns.items():
                own[name] += [np.nan if value is None else value for value in values]
    return {operator: {name: np.array(v) for name, v in own.items()} for operator, own in found.items()}


def gathered() -> dict[str, Any]:
    """All that was measured, as plain data."""
    networks = [f"seed{seed}" for seed in SEEDS] + list(LENETS)
    found = {network: scores(network) | scores(network, "manitest") for network in networks}
    table = {
        network: {operator: _figures(own) for operator, own in both.items()} for network, both in found.items() if both
    }
    settings = {}
    for setting in SETTINGS:
        own, base = scores("seed0", setting), found["seed0"]
        if setting not in ("usual", "manitest") and own:
            settings[setting] = {
                operator: _change(columns["score"], base[operator]["score"], paired="test images" not in setting)
                for operator, columns in own.items()
                if operator in base
            }
    return {"table": table, "settings": settings, "compared": _compared(list(found.values()))}


def _compared(networks: list[dict[str, dict[str, np.ndarray]]]) -> dict[str, dict[str, float]]:
    """By group, Manitest's mean over ManiFool's on the images that both were asked about, with its standard error."""
    compared = {}
    for group in GROUPS:
        asked = [own for own in networks[: len(SEEDS)] if {f"{group}:manifool", f"{group}:manitest"} <= own.keys()]
        pairs = [(own[f"{group}:manitest"]["score"], own[f"{group}:manifool"]["score"]) for own in asked]
        if pairs:
            marched, followed = (np.concatenate(side) for side in zip(*(_common(*pair) for pair in pairs), strict=True))
            gap, base = marched - followed, float(np.nanmean(followed))
            compared[group] = {
                "ratio": 1 + float(np.nanmean(gap)) / base,
                "error": float(np.nanstd(gap, ddof=1) / len(gap) ** 0.5) / base,
                "images": len(gap),
                "below": float(np.mean(gap < 0)),
            }
    return compared


def _common(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    count = min(len(first), len(second))
    return first[:count], second[:count]


def _figures(own: dict[str, np.ndarray]) -> dict[str, float]:
    value = own["score"]
    there = value[~np.isnan(value)]
    return {
        "images": len(value),
        "failed": int(np.isnan(value).sum()),
        "score": float(there.mean()),
        "error": float(there.std(ddof=1) / len(there) ** 0.5),
        **{name: float(own[name].mean()) for name in ("seconds", "queries", "gradients")},
    }


def _change(found: np.ndarray, base: np.ndarray, paired: bool) -> dict[str, float]:
    """By how much the mean moves, with its standard error, and the share of images whose scores do."""
    count = min(len(found), len(base))
    found, base = found[:count], base[:count]
    other = float(np.mean(~np.isclose(found, base, rtol=1e-6, equal_nan=True))) if paired else 1.0
    mean = np.nanmean(base)
    both = np.nanvar(found - base, ddof=1) if paired else np.nanvar(found, ddof=1) + np.nanvar(base, ddof=1)
    return {
        "change": float(np.nanmean(found) / mean - 1),
        "error": float((both / count) ** 0.5 / mean),
        "images": count,
        "failed": int(np.isnan(found).sum()),
        "other": other,
    }


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=1000, help="of each training seed, by ManiFool")
    parser.add_argument("--marched", type=int, help="of each training seed, by Manitest; as many by default")
    parser.add_argument("--others", type=int, default=100, help="of each setting and each LeNet")
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--workers", type=int, default=1, help="processes, each with one thread")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which no block is begun")
    given = parser.parse_args()
    if not (ASSETS / "images" / "mnist_train.npz").exists():
        raise SystemExit("Table 1 needs the folder of test assets with MNIST: set BRINELL_ASSETS to it")
    until = time.perf_counter() + given.seconds
    seeds = [f"seed{seed}" for seed in range(given.seeds)]
    sizes = {"usual": given.images, "manitest": given.images if given.marched is None else given.marched}
    asked = [block for seed in seeds for setting, size in sizes.items() for block in blocks(seed, size, setting)]
    asked += [block for lenet in LENETS for setting in sizes for block in blocks(lenet, given.others, setting)]
    others = [name for name in SETTINGS if name not in sizes] if given.seeds else []
    asked += [block for setting in others for block in blocks("seed0", given.others, setting)]
    _train(asked, given.workers)
    carry_out(sorted(asked, key=lambda block: (block.number, "manitest" not in block.setting)), given.workers, until)


def _train(asked: list[Block], workers: int) -> None:
    """Train the networks that blocks are of and that are not there yet."""
    epochs = {block: block.setting if "epoch" in block.setting else "usual" for block in asked}
    wanted = {(block.network, kind) for block, kind in epochs.items() if block.network not in LENETS}
    if workers <= 1 or not wanted:
        for network, kind in sorted(wanted):
            model_of(network, kind)
        return
    os.environ["OMP_NUM_THREADS"] = str(max(1, workers // len(wanted)))
    with ProcessPoolExecutor(len(wanted), get_context("spawn")) as pool:
        for done in [pool.submit(_train_one, network, kind) for network, kind in sorted(wanted)]:
            done.result()


def _train_one(network: str, kind: str) -> None:
    model_of(network, kind)


if __name__ == "__main__":
    main()
