"""mCE of two networks on photographs, by our corruptions and by the published code: `python -m fidelity.corruptions`.

    .venv-zoo/bin/python -m fidelity.corruptions --images 100 --script make_imagenet_c.py   measure, and write the page
    .venv/bin/python -m fidelity.corruptions --page                                         write it from stored results

The published code is the package imagecorruptions and, for the two corruptions that it has in other versions, a copy of
ImageNet-C's script (ImageNet-C/create_c of hendrycks/robustness). All sides corrupt the same 224×224 inputs and query the
same networks. Results are stored after every block of photographs and every side in results/corruptions.json; what is
there is not repeated. Each block has a seed of its own. The page is docs/fidelity-corruptions.md.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

import brinell
from brinell.lenses.profile.robustness import ALEXNET, ALEXNET_CLEAN, SEVERITIES
from fidelity.bar_page import read_bar
from fidelity.corruptions_page import EXACT, PAGE, render_page
from fidelity.measure import ASSETS, IMAGES
from fidelity.published_corruptions import Corrupt, published_corruptions, script_corruptions

RESULTS = Path(__file__).parent / "results" / "corruptions.json"
NETWORKS = ("mobilenet_v2", "squeezenet1_1")
SIDE, SHORTER = 224, 256  # ImageNet-C's images: the centre of the resized photograph
BLOCK = 10
SEED, OTHER_SEED = 0, 1_000_000  # of the published code's random numbers, and of their repetition
DRAWS = 100
SEEDS, NOISE = 10, "gaussian_noise"  # of both sides, for the corruption whose one draw of each differed most clearly
BORDERLINE = ((1, 1), (2, 1), (3, 2), (3, 3), (4, 4))  # photographs and severities
Pixels = NDArray[np.uint8]
Block = dict[str, Any]


def photographs(start: int, stop: int) -> tuple[list[Pixels], list[int]]:
    """Return photographs at the size of the model input, as ImageNet-C cuts them, and their labels."""
    lines = (IMAGES / "metadata.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines][start:stop]
    margin = (SHORTER - SIDE) // 2
    images = []
    for row in rows:
        whole = Image.open(IMAGES / row["file_name"]).convert("RGB").resize((SHORTER, SHORTER), Image.Resampling.BICUBIC)
        images.append(np.asarray(whole.crop((margin, margin, margin + SIDE, margin + SIDE))))
    return images, [int(row["label"]) for row in rows]


def open_networks() -> dict[str, brinell.Model]:
    """Return the networks by name; they take 224×224 inputs as they are."""
    return {name: brinell.open_model(f"onnx:{ASSETS}/models/{name}.onnx?resize=stretch") for name in NETWORKS}


def measure_ours(models: dict[str, brinell.Model], images: list[Pixels], labels: list[int]) -> Block:
    """Return which answers are wrong under our corruptions, (images, severities 0 to 5) by network and corruption.

    Also brinell's own mCE and relative mCE, to compare with the formula on this page.
    """
    with tempfile.TemporaryDirectory() as folder:
        data = list(zip(images, labels, strict=True))
        execution = brinell.Execution(batch=BLOCK)
        run = brinell.run(
            list(models.values()), data, lens="profile", preset="imagenet_c", out=folder, execution=execution, quiet=True
        )
        sql = """select model, operator, index, list(not correct order by level) from rows join samples using (image)
                 group by all order by all"""
        wrong: dict[str, dict[str, list[list[int]]]] = {}
        for model, operator, _, levels in run.rows(sql).fetchall():
            wrong.setdefault(model, {}).setdefault(operator, []).append([int(level) for level in levels])
        found = run.summary().robustness  # type: ignore[attr-defined]
        own = {model: [found[model].mce.value, found[model].relative_mce.value] for model in wrong}
    return {"wrong": wrong, "mce": own}


def measure_published(
    models: dict[str, brinell.Model],
    images: list[Pixels],
    labels: list[int],
    functions: dict[str, Corrupt],
    seed: int,
) -> Block:
    """Return which answers are wrong under published functions, by network and corruption."""
    wrong: dict[str, dict[str, Any]] = {name: {} for name in models}
    clean = {name: _wrong(model, images, labels) for name, model in models.items()}
    np.random.seed(seed)  # noqa: TID251, whose numbers the published code draws
    for operator, corrupt in functions.items():
        found = {name: [clean[name]] for name in models}
        for severity in range(1, SEVERITIES + 1):
            changed = [np.uint8(corrupt(Image.fromarray(image), severity)) for image in images]
            for name, model in models.items():
                found[name].append(_wrong(model, changed, labels))
        for name in models:
            wrong[name][f"{operator}:imagenet_c"] = np.stack(found[name], 1).tolist()
    return wrong


def _wrong(model: brinell.Model, images: list[Any], labels: list[int]) -> NDArray[np.int64]:
    import torch

    batch = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).contiguous()
    return (model.answer(batch)[0].argmax(1).numpy() != np.array(labels)).astype(np.int64)


def corruption_errors(wrong: dict[str, Any]) -> tuple[float, float]:
    """Return mCE and relative mCE by the formulas of the paper, from wrong answers (images, severities 0 to 5)."""
    errors, relative = [], []
    for operator, alexnet in ALEXNET.items():
        means = np.array(wrong[operator]).mean(0)
        errors.append(means[1:].sum() / (SEVERITIES * alexnet))
        relative.append((means[1:] - means[0]).sum() / (SEVERITIES * (alexnet - ALEXNET_CLEAN)))
    return float(np.mean(errors)), float(np.mean(relative))


def measure_sides(start: int, held: Block, script: Path | None) -> Iterator[tuple[str, Block]]:
    """Yield what is not stored yet about a block of photographs: our corruptions, the package's, and the script's.

    Random ones of the published code are measured twice, with other random numbers: how much these alone change.
    """
    models = open_networks()
    images, labels = photographs(start, start + BLOCK)
    if "ours" not in held:
        ours = measure_ours(models, images, labels)
        for network, (mce, relative) in ours["mce"].items():
            expected = corruption_errors(ours["wrong"][network])
            assert np.allclose((mce, relative), expected), f"brinell's mCE is not that of the paper: {mce} and {expected}"
        yield "ours", ours["wrong"]
    names = [operator.partition(":")[0] for operator in ALEXNET]
    of_script = script_corruptions(script) if script is not None else {}
    with published_corruptions() as package:
        of_package = {name: getattr(package, name) for name in names}
        repeated = {name: function for name, function in (of_package | of_script).items() if name not in EXACT}
        sides = {
            "package": (of_package, SEED),
            "script": (of_script, SEED),
            "repeated": (repeated if of_script else {}, OTHER_SEED),
        }
        for side, (functions, seed) in sides.items():
            if side not in held and functions:
                yield side, measure_published(models, images, labels, functions, seed + start)


def measure_draws() -> list[dict[str, Any]]:
    """Return how often impulse noise breaks answers to photographs that it breaks now and then, in many draws of each side.

    Five photographs once gave corruption errors of 82.4 and 60.7 for it: one draw each, on answers near a boundary.
    """
    import torch

    network = open_networks()[NETWORKS[0]]
    images, labels = photographs(0, 5)
    operator = brinell.find_operator("impulse_noise:imagenet_c")
    found = []
    with published_corruptions() as package:
        np.random.seed(SEED)  # noqa: TID251, whose numbers the published code draws
        for photo, severity in BORDERLINE:
            copies = torch.tensor(images[photo]).permute(2, 0, 1).expand(DRAWS, -1, -1, -1).contiguous()
            made = operator.at(copies, severity, seed=SEED, ids=torch.arange(DRAWS))
            ours = list(made.permute(0, 2, 3, 1).numpy())
            theirs = [np.uint8(package.impulse_noise(Image.fromarray(images[photo]), severity)) for _ in range(DRAWS)]
            wrong = [int(_wrong(network, side, [labels[photo]] * DRAWS).sum()) for side in (ours, theirs)]
            found.append({"photo": photo, "severity": severity, "draws": DRAWS, "ours": wrong[0], "published": wrong[1]})
    return found


def measure_seeds(count: int) -> dict[str, Any]:
    """Return how many severities of Gaussian noise each photograph is wrong at, (seeds, images) of each side.

    One draw of each side once differed by 3.4 points [0.2, 6.6] for the first network.
    """
    import torch

    network = open_networks()[NETWORKS[0]]
    images, labels = photographs(0, count)
    operator, ids = brinell.find_operator(f"{NOISE}:imagenet_c"), torch.arange(count)
    clean = torch.tensor(np.stack(images)).permute(0, 3, 1, 2).contiguous()
    found: dict[str, Any] = {"operator": NOISE, "network": NETWORKS[0], "ours": [], "published": []}
    with published_corruptions() as package:
        corrupt = getattr(package, NOISE)
        for seed in range(1, SEEDS + 1):
            np.random.seed(seed)  # noqa: TID251, whose numbers the published code draws
            wrong = {side: np.zeros(count, np.int64) for side in ("ours", "published")}
            for severity in range(1, SEVERITIES + 1):
                made = list(operator.at(clean, severity, seed=seed, ids=ids).permute(0, 2, 3, 1).numpy())
                wrong["ours"] += _wrong(network, made, labels)
                made = [np.uint8(corrupt(Image.fromarray(image), severity)) for image in images]
                wrong["published"] += _wrong(network, made, labels)
            for side, own in wrong.items():
                found[side].append(own.tolist())
    return found


def read_results() -> dict[str, Any]:
    """Return what is stored."""
    if not RESULTS.exists():
        return {"networks": list(NETWORKS), "blocks": {}}
    results: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8"))
    return results


def main() -> None:
    """Measure what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--script", type=Path, help="a copy of ImageNet-C's make_imagenet_c.py")
    parser.add_argument("--page", action="store_true", help="write the page from stored results")
    options = parser.parse_args()
    for start in () if options.page else range(0, options.images, BLOCK):
        name = f"{start}-{start + BLOCK}"
        for side, wrong in measure_sides(start, read_results()["blocks"].get(name, {}), options.script):
            results = read_results()
            results["blocks"].setdefault(name, {})[side] = wrong
            RESULTS.write_text(json.dumps(results, separators=(",", ":")) + "\n", encoding="utf-8")
            print(f"photographs {name}: {side}", flush=True)
    more = {"draws": measure_draws, "seeds": lambda: measure_seeds(BLOCK * len(read_results()["blocks"]))}
    for name, measure in more.items():
        if not options.page and name not in read_results():
            results = read_results() | {name: measure()}
            RESULTS.write_text(json.dumps(results, separators=(",", ":")) + "\n", encoding="utf-8")
    PAGE.write_text(render_page(read_results(), read_bar()), encoding="utf-8")


if __name__ == "__main__":
    main()
