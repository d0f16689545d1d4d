"""The paper's study on CIFAR-10, on the assets' 5,000 training images: what makes a network less fragile?

    python -m fidelity.fragility_cifar [--whole --device cuda --workers 4]

`--whole` trains networks of the paper's size as long as the paper does: minutes on an accelerator. What they gave is kept
in fidelity/results/cifar.json, of which the page is made. Without it small ones are trained for a few epochs, to try it.

Networks with smaller crops in training, with regularisers, with large pooling, and with two scales; for each, the share of
fragile windows against their size, by correctness and by label, resized (nearest) or padded with black, and the share of
places on black at which a shift changes the label. What a network gave lies under runs/fidelity-cifar-*; a second call
measures nothing again. The paper's intent is followed where its code slips: ">=24" is trained on 28 and 24, ">=12" sees 12.
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

import altair as alt
import numpy as np
import torch
from torch import Tensor

from brinell.lenses.fragility.fragile import WindowAnswers, find_fragile
from brinell.lenses.fragility.windows import Array, Neighbourhood, WindowGrid
from brinell.perturb.windows import cut_windows, location_view
from fidelity.cifar_net import SIDE, Recipe, SmallAlexNet, standardised, train
from fidelity.measure import ASSETS, ROOT, require_assets
from fidelity.words import grid

RESULTS = Path(__file__).parent / "results" / "cifar.json"
SIZES = (28, 24, 20, 16, 12)
POOLS = (3, 9, 15, 21, 27, 32)
BATCH = 1024
NEAR = 6  # pixels from the frame: two convolutions and the first pooling see 5, and a shift adds one
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
    """How much is trained and measured. Networks with stride 1, for pooling, cost several times as much: unless all are
    wanted, two of them get a third of the epochs and half of the images.
    """

    epochs: int
    width: float
    images: int
    all: bool

    def wants(self, recipe: Recipe) -> bool:
        """Whether a network is part of the study."""
        return self.all or recipe.pool in (None, POOLS[0], POOLS[-1])

    def of(self, recipe: Recipe) -> tuple[int, int]:
        """How many epochs and images a network gets."""
        if recipe.pool is None or self.all:
            return self.epochs, self.images
        return max(1, self.epochs // 3), max(1, self.images // 2)

    def files(self) -> dict[str, Path]:
        """Where each network's figures lie."""
        folder = ROOT / "runs" / f"fidelity-cifar-{self.epochs}-{self.width:g}-{self.images}{'-all' if self.all else ''}"
        wanted = [name for name, recipe in RECIPES.items() if self.wants(recipe)]
        return {name: folder / f"{name.replace(' ', '-').replace('>=', 'from-')}.json" for name in wanted}


SMALL = Effort(epochs=6, width=0.125, images=12, all=False)
WHOLE = Effort(epochs=100, width=1.0, images=400, all=True)


def study(effort: Effort, device: str = "cpu", workers: int = 1) -> dict[str, dict[str, Any]]:
    """Every network's figures, by its name. Networks are trained side by side, where there are several workers."""
    require_assets()
    files = effort.files()
    asked = [(name, effort, device, file) for name, file in files.items() if not file.exists()]
    if workers == 1:
        for one in asked:
            _measure(*one)
    elif asked:
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            for _ in pool.map(_measure, *zip(*asked, strict=True)):
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
    tell = lambda line: print(f"{name}: {line}", flush=True)  # noqa: E731
    net = train(recipe, images, labels, epochs=epochs, width=effort.width, device=device, tell=tell)
    trained = time.perf_counter() - start
    whole = {
        "test": _right(net, tests[:1000], truths[:1000], device),
        "training": _right(net, images[:500], labels[:500], device),
    }
    chosen, truths = tests[:count].to(device), truths[:count]
    found = {
        "epochs": epochs,
        "accuracy": whole,
        "resized": {size: _fragile(net, chosen, truths, size, "nearest", device) for size in SIZES},
        "padded": {size: _fragile(net, chosen, truths, size, "pad", device) for size in SIZES if recipe.pool},
        "location": {size: _located(net, chosen, truths, size, device) for size in SIZES if recipe.pool},
        "seconds": {"training": trained, "maps": time.perf_counter() - start - trained},
    }
    tell(f"{whole['test']:.1%} right; {found['seconds']['training']:.0f} s and {found['seconds']['maps']:.0f} s")
    return found


def _images(name: str) -> tuple[Tensor, Tensor]:
    with np.load(ASSETS / "images" / f"cifar10_{name}.npz") as content:
        return torch.from_numpy(content["images"].transpose(0, 3, 1, 2).copy()), torch.from_numpy(content["labels"])


def _predicted(net: SmallAlexNet, inputs: Tensor, device: torch.device) -> Tensor:
    with torch.inference_mode():
        return torch.cat([net(standardised(part.to(device))) for part in inputs.split(BATCH)]).cpu()


def _right(net: SmallAlexNet, images: Tensor, labels: Tensor, device: torch.device) -> float:
    """Accuracy on the middle of images, as large as most training crops."""
    middle = torch.tensor([[2, 2]])
    inputs = torch.cat([cut_windows(image, 28, middle, SIDE, SIDE, "bilinear") for image in images])
    return float((_predicted(net, inputs, device).argmax(1) == labels).float().mean())


def _answers(grid: WindowGrid, scores: Tensor, label: int) -> WindowAnswers:
    best, sure = scores.argmax(1), scores.softmax(1)[:, label]
    rank = (scores > scores[:, label : label + 1]).sum(1).to(torch.uint8)
    return WindowAnswers(grid, *(grid.to_map(each.numpy()) for each in (best == label, best, sure, rank)))


def _fragile(
    net: SmallAlexNet, images: Tensor, labels: Tensor, size: int, fit: Any, device: torch.device
) -> dict[str, float]:
    """Mean shares over images: right windows, and fragile ones of each kind, by correctness and by label."""
    hood = Neighbourhood.of(size, SIDE, SIDE)
    grids = {"shift": hood.shifted} | (
        {} if net.recipe.pool else {"shrink": hood.shrunk}
    )  # of pooling the paper shows shifts
    corners = {move: torch.from_numpy(grid.corners()) for move, grid in grids.items()}
    inputs = [
        cut_windows(image, grid.side, corners[move], SIDE, SIDE, fit) for image in images for move, grid in grids.items()
    ]
    scores = iter(_predicted(net, torch.cat(inputs), device).split([len(each) for each in inputs]))
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


def _located(net: SmallAlexNet, images: Tensor, labels: Tensor, size: int, device: torch.device) -> float:
    """The share of places on black at which some shift by a pixel changes the label."""
    return float(np.mean([changes.mean() for changes in _changes(net, images, labels, size, device)]))


def _changes(net: SmallAlexNet, images: Tensor, labels: Tensor, size: int, device: torch.device) -> list[Array]:
    """For each image, a map of the places at which it does."""
    hood, view = Neighbourhood.of(size, SIDE, SIDE), location_view(str(size), SIDE, SIDE)
    grid = hood.shifted
    corners = torch.from_numpy(grid.corners())
    parameters = torch.cat([corners, torch.full((len(grid), 1), size)], 1).to(torch.float64)
    inputs = torch.cat([view.look(image, parameters, lambda made: made) for image in images])
    parts = _predicted(net, inputs, device).split(len(grid))
    answers = [_answers(grid, scores, label) for label, scores in zip(labels.tolist(), parts, strict=True)]
    return [find_fragile(hood, one, one, "shift", by="label").loose for one in answers]


def edges(size: int = 12, images: int = 40) -> tuple[float, float, float]:
    """With pooling over the whole map: the share of places near the frame, and at which share of those, and of the others,
    a shift changes the label. It is what padding does, whatever the weights: few channels, not trained, show it.
    """
    recipe = Recipe(pool=SIDE)
    net = SmallAlexNet(recipe, 0.125, torch.Generator().manual_seed(0)).eval()
    tests, truths = _images("test_2000")
    changes = np.stack(_changes(net, tests[:images], truths[:images], size, torch.device("cpu")))
    near = np.ones(changes.shape[1:], bool)
    near[NEAR:-NEAR, NEAR:-NEAR] = False
    return tuple(float(part.mean()) for part in (near, changes[:, near], changes[:, ~near]))  # type: ignore[return-value]


def page() -> dict[str, Any]:
    """What the page of the fragility lens tells of the whole study."""
    if not RESULTS.exists():
        raise SystemExit("the study on CIFAR-10 was not made yet: python -m fidelity.fragility_cifar --whole first")
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    trained, pooled = ([name for name in found if bool(RECIPES[name].pool) is pooling] for pooling in (False, True))
    accuracy = {name: one["accuracy"]["test"] for name, one in found.items()}
    return {
        "epochs": WHOLE.epochs,
        "images": WHOLE.images,
        "networks": len(found),
        "accuracy": (min(accuracy.values()), max(accuracy.values())),
        "fit": (found["28"]["accuracy"]["training"], accuracy["28"]),
        "pooled_right": [accuracy[name] for name in (pooled[0], pooled[-1])],
        "by": {by: _by(found, f"loose shift by {by}") for by in ("correct", "label")},
        "black": {size: {RECIPES[name].pool: found[name]["location"][str(size)] for name in pooled} for size in SIZES},
        "near": NEAR,
        "edges": edges(),
        "training": _training_table(found, trained),
        "labels": _label_table(found, trained),
        "pooling": _pooling_table(found, pooled),
        "figure": _figure(found, trained, pooled),
    }


def _by(found: dict[str, Any], kind: str) -> dict[int, dict[str, float]]:
    """By size and network: the share of windows that are fragile."""
    return {size: {name: one["resized"][str(size)][kind] for name, one in found.items()} for size in SIZES}


def _training_table(found: dict[str, Any], names: list[str]) -> str:
    lines = []
    for name in names:
        sizes = [found[name]["resized"][str(size)] for size in SIZES]
        cells = [f"{100 * one['loose shift by correct']:.0f} % ({100 * one['right']:.0f} %)" for one in sizes]
        lines.append([name, *cells, f"{100 * found[name]['accuracy']['test']:.0f} %"])
    return grid(["fragile (correct)", *(f"{size} px" for size in SIZES), "accuracy"], lines)


def _label_table(found: dict[str, Any], names: list[str]) -> str:
    lines = []
    for name in names:
        sizes = [found[name]["resized"][str(size)] for size in SIZES]
        lines.append([name, *(f"{100 * one['loose shift by label']:.0f} %" for one in sizes)])
    return grid(["label changes", *(f"{size} px" for size in SIZES)], lines)


def _pooling_table(found: dict[str, Any], names: list[str]) -> str:
    lines = []
    for name in names:
        for what in ("location", "resized", "padded"):
            own = found[name][what]
            values = [own[str(size)] if what == "location" else own[str(size)]["loose shift by label"] for size in SIZES]
            lines.append(
                [
                    name,
                    {"location": "on black"}.get(what, f"windows, {what}"),
                    *(f"{100 * value:.0f} %" for value in values),
                ]
            )
    return grid(["", "label changes", *(f"{size} px" for size in SIZES)], lines)


def _figure(found: dict[str, Any], trained: list[str], pooled: list[str]) -> Any:
    """Fig. 6 and Fig. 7: lines over crop sizes, and over pooling sizes."""
    records = []
    kinds = {"fragile": "loose shift by correct", "label changes": "loose shift by label"}
    for group in ("crops in training", "regularisers and scales"):
        own = [name for name in trained if name == "28" or name.startswith(">=") is (group == "crops in training")]
        for what, kind in kinds.items():
            for name in own:
                shares = {size: found[name]["resized"][str(size)][kind] for size in SIZES}
                at = {"panel": f"{group}: {what}", "line": name}
                records += [{**at, "x": size, "share": round(100 * share, 2)} for size, share in shares.items()]
    for name in pooled:
        for size in SIZES:
            at = {"line": f"{size} px", "x": RECIPES[name].pool}
            moved, label = found[name]["location"][str(size)], found[name]["resized"][str(size)]["loose shift by label"]
            records.append({"panel": "pooling: label changes on black", **at, "share": round(100 * moved, 2)})
            records.append({"panel": "pooling: label changes in windows", **at, "share": round(100 * label, 2)})
    charts = []
    for panel, x in zip(
        dict.fromkeys(record["panel"] for record in records), ["window, px"] * 4 + ["pooling"] * 2, strict=True
    ):
        data = alt.InlineData(values=[record for record in records if record["panel"] == panel])
        chart = (
            alt.Chart(data, title=panel)
            .mark_line(point=True)
            .encode(
                x=alt.X("x:Q", title=x), y=alt.Y("share:Q", title="%"), color=alt.Color("line:N", title=None, sort=None)
            )
        )
        charts.append(chart.properties(width=230, height=150))
    return alt.concat(*charts, columns=2).resolve_scale(color="independent")


def main() -> None:
    """Train and measure all networks."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--whole", action="store_true", help="networks and training as long as the paper's, all pooling sizes"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--workers", type=int, default=1, help="networks trained side by side")
    given = parser.parse_args()
    found = study(WHOLE if given.whole else SMALL, given.device, given.workers)
    if given.whole:
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
