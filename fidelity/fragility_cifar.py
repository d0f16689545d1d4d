"""The study on CIFAR-10 (fragile recognition, ICLR 2019) on the 5,000 training images of the assets.

    python -m fidelity.fragility_cifar [--whole --device cuda --workers 4]

`--whole` trains networks of the paper's size for as long as the paper does: minutes on an accelerator. Results are stored
in fidelity/results/cifar.json for the page. Without it, small networks are trained for a few epochs, as a trial.

The networks have smaller training crops, regularisers, large pooling or two scales. For each, the study measures the share
of fragile windows by size, by correctness and by label, resized (nearest) or padded with black, and the share of positions
on black at which a shift changes the label. Results of networks are stored under runs/fidelity-cifar-* and not repeated.
Where the paper's code deviates from its text, the text counts: ">=24" is trained on 28 and 24, ">=12" includes 12.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brinell.lenses.fragility.fragile import WindowAnswers, find_fragile
from brinell.lenses.fragility.windows import Array, Neighbourhood, WindowGrid
from brinell.perturb.windows import cut_windows, location_view
from fidelity.cifar_net import SIDE, Recipe, SmallAlexNet, standardise, train
from fidelity.measure import ASSETS, ROOT, require_assets

RESULTS = Path(__file__).parent / "results" / "cifar.json"
SIZES = (28, 24, 20, 16, 12)
POOLS = (3, 9, 15, 21, 27, 32)
BATCH = 1024
NEAR = 6  # pixels from the frame: the reach of two convolutions and the first pooling is 5, and a shift adds one
RECIPES = {
    "28": Recipe(),
    **{f">={SIZES[count]}": Recipe(crops=SIZES[: count + 1]) for count in range(1, len(SIZES))},
    "distortion": Recipe(distortion=True),
    "dropout": Recipe(dropout=True),
    "weight decay": Recipe(weight_decay=True),
    "all": Recipe(distortion=True, dropout=True, weight_decay=True),
    "two scales": Recipe(scales=True),
    **{f"pool {size}": Recipe(pool=size) for size in POOLS},
}


@dataclass(frozen=True)
class Effort:
    """How much to train and measure. Networks with stride 1, for pooling, cost several times as much: without `all`, two of
    them get a third of the epochs and half of the images.
    """

    epochs: int
    width: float
    images: int
    all: bool

    def wants(self, recipe: Recipe) -> bool:
        """Whether the study includes a network."""
        return self.all or recipe.pool in (None, POOLS[0], POOLS[-1])

    def of(self, recipe: Recipe) -> tuple[int, int]:
        """Return the number of epochs and images of a network."""
        if recipe.pool is None or self.all:
            return self.epochs, self.images
        return max(1, self.epochs // 3), max(1, self.images // 2)

    def files(self) -> dict[str, Path]:
        """Return the file of each network's results."""
        folder = ROOT / "runs" / f"fidelity-cifar-{self.epochs}-{self.width:g}-{self.images}{'-all' if self.all else ''}"
        wanted = [name for name, recipe in RECIPES.items() if self.wants(recipe)]
        return {name: folder / f"{name.replace(' ', '-').replace('>=', 'from-')}.json" for name in wanted}


SMALL = Effort(epochs=6, width=0.125, images=12, all=False)
WHOLE = Effort(epochs=100, width=1.0, images=400, all=True)


def study(effort: Effort, device: str = "cpu", workers: int = 1) -> dict[str, dict[str, Any]]:
    """Return the results of every network, by name. Several workers train networks in parallel."""
    require_assets()
    files = effort.files()
    missing = [(name, effort, device, file) for name, file in files.items() if not file.exists()]
    if workers == 1:
        for one in missing:
            _measure(*one)
    elif missing:
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            for _ in pool.map(_measure, *zip(*missing, strict=True)):
                pass
    return {name: json.loads(file.read_text()) for name, file in files.items()}


def _measure(name: str, effort: Effort, device: str, file: Path) -> None:
    torch.backends.cuda.matmul.allow_tf32 = True
    figures = json.dumps(_network(name, RECIPES[name], effort, torch.device(device)), indent=1)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(figures)


def _network(name: str, recipe: Recipe, effort: Effort, device: torch.device) -> dict[str, Any]:
    """Train a network and map the windows of test images."""
    images, labels = _images("train_5000")
    tests, truths = _images("test_2000")
    start = time.perf_counter()
    epochs, count = effort.of(recipe)
    report = lambda line: print(f"{name}: {line}", flush=True)  # noqa: E731
    net = train(recipe, images, labels, epochs=epochs, width=effort.width, device=device, report=report)
    trained = time.perf_counter() - start
    whole = {
        "test": _accuracy(net, tests[:1000], truths[:1000], device),
        "training": _accuracy(net, images[:500], labels[:500], device),
    }
    chosen, truths = tests[:count].to(device), truths[:count]
    found = {
        "epochs": epochs,
        "accuracy": whole,
        "resized": {size: _fragile(net, chosen, truths, size, "nearest", device) for size in SIZES},
        "padded": {size: _fragile(net, chosen, truths, size, "pad", device) for size in SIZES if recipe.pool},
        "location": {size: _locate(net, chosen, truths, size, device) for size in SIZES if recipe.pool},
        "seconds": {"training": trained, "maps": time.perf_counter() - start - trained},
    }
    report(f"{whole['test']:.1%} right; {found['seconds']['training']:.0f} s and {found['seconds']['maps']:.0f} s")
    return found


def _images(name: str) -> tuple[Tensor, Tensor]:
    with np.load(ASSETS / "images" / f"cifar10_{name}.npz") as content:
        return torch.from_numpy(content["images"].transpose(0, 3, 1, 2).copy()), torch.from_numpy(content["labels"])


def _predict(net: SmallAlexNet, inputs: Tensor, device: torch.device) -> Tensor:
    with torch.inference_mode():
        return torch.cat([net(standardise(part.to(device))) for part in inputs.split(BATCH)]).cpu()


def _accuracy(net: SmallAlexNet, images: Tensor, labels: Tensor, device: torch.device) -> float:
    """Return the accuracy on the centre of images, cropped to the size of most training crops."""
    middle = torch.tensor([[2, 2]])
    inputs = torch.cat([cut_windows(image, 28, middle, SIDE, SIDE, "bilinear") for image in images])
    return float((_predict(net, inputs, device).argmax(1) == labels).float().mean())


def _answers(grid: WindowGrid, scores: Tensor, label: int) -> WindowAnswers:
    best, sure = scores.argmax(1), scores.softmax(1)[:, label]
    rank = (scores > scores[:, label : label + 1]).sum(1).to(torch.uint8)
    return WindowAnswers(grid, *(grid.to_map(each.numpy()) for each in (best == label, best, sure, rank)))


def _fragile(
    net: SmallAlexNet, images: Tensor, labels: Tensor, size: int, fit: Any, device: torch.device
) -> dict[str, float]:
    """Return mean shares over images: correct windows, and fragile ones of each kind, by correctness and by label."""
    hood = Neighbourhood.of(size, SIDE, SIDE)
    grids = {"shift": hood.shifted} | (
        {} if net.recipe.pool else {"shrink": hood.shrunk}
    )  # of pooling the paper shows shifts
    corners = {move: torch.from_numpy(grid.corners()) for move, grid in grids.items()}
    inputs = [
        cut_windows(image, grid.side, corners[move], SIDE, SIDE, fit) for image in images for move, grid in grids.items()
    ]
    scores = iter(_predict(net, torch.cat(inputs), device).split([len(each) for each in inputs]))
    sums: dict[str, float] = defaultdict(float)
    for label in labels.tolist():
        answers = {change: _answers(grid, next(scores), label) for change, grid in grids.items()}
        large = answers["shift"]
        sums["right"] += float(large.correct.mean())
        for change, after in answers.items():
            for by in ("correct", "label"):
                found = find_fragile(hood, large, after, change, by=by)  # type: ignore[arg-type]
                sums[f"loose {change} by {by}"] += float(found.loose.mean())
                sums[f"strict {change} by {by}"] += float(found.strict.mean())
    return {name: total / len(images) for name, total in sums.items()}


def _locate(net: SmallAlexNet, images: Tensor, labels: Tensor, size: int, device: torch.device) -> float:
    """Return the share of positions on black at which a shift by one pixel changes the label."""
    return float(np.mean([changes.mean() for changes in _changes(net, images, labels, size, device)]))


def _changes(net: SmallAlexNet, images: Tensor, labels: Tensor, size: int, device: torch.device) -> list[Array]:
    """Return a map of these positions for each image."""
    hood, view = Neighbourhood.of(size, SIDE, SIDE), location_view(str(size), SIDE, SIDE)
    grid = hood.shifted
    corners = torch.from_numpy(grid.corners())
    parameters = torch.cat([corners, torch.full((len(grid), 1), size)], 1).to(torch.float64)
    inputs = torch.cat([view.look(image, parameters, lambda made: made) for image in images])
    parts = _predict(net, inputs, device).split(len(grid))
    answers = [_answers(grid, scores, label) for label, scores in zip(labels.tolist(), parts, strict=True)]
    return [find_fragile(hood, one, one, "shift", by="label").loose for one in answers]


def edges(size: int = 12, images: int = 40) -> tuple[float, float, float]:
    """Return, with pooling over the whole map, the share of positions near the frame, and the shares of those and of the
    others at which a shift changes the label. This is an effect of padding, not of weights: a small untrained
    network shows it.
    """
    recipe = Recipe(pool=SIDE)
    net = SmallAlexNet(recipe, 0.125, torch.Generator().manual_seed(0)).eval()
    tests, truths = _images("test_2000")
    changes = np.stack(_changes(net, tests[:images], truths[:images], size, torch.device("cpu")))
    near = np.ones(changes.shape[1:], bool)
    near[NEAR:-NEAR, NEAR:-NEAR] = False
    return tuple(float(part.mean()) for part in (near, changes[:, near], changes[:, ~near]))  # type: ignore[return-value]


def main() -> None:
    """Train and measure all networks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--whole", action="store_true", help="networks and training of the paper's size, all pooling sizes")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1, help="networks trained in parallel")
    given = parser.parse_args()
    found = study(WHOLE if given.whole else SMALL, given.device, given.workers)
    if given.whole:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
