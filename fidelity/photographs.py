"""A row of the ManiFool paper's Fig. 7: networks of the test assets on photographs, similarity and affine.

    python -m fidelity.photographs --images 300 --device cuda
    python -m fidelity.photographs --images 25 --retry 8 --methods manifool --networks mobilenet_v2

Every network is asked about the same photographs, in blocks, both groups by ManiFool and by random motions. After every
block what was found is kept in fidelity/results/photographs.json, apart for every choice of settings; a block that is
there is not measured again. Blocks are begun while there are seconds left, so that all networks have about as many
photographs. A photograph that nothing fools costs 50 steps of 3 targets, each about 13 forward passes.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import brinell
from brinell.criteria.criterion import find_criterion
from brinell.draws import permutation
from brinell.engine.evaluator import Evaluator
from brinell.engine.threads import torch_alone
from brinell.lenses.geometry.lens import measure as measure_motion
from brinell.lenses.geometry.lens import select_motions
from brinell.lenses.geometry.options import GeometryOptions
from brinell.models.model import Model
from brinell.models.sources import open_model
from fidelity.measure import ASSETS, IMAGES, require_assets

RESULTS = Path(__file__).parent / "results" / "photographs.json"
# network of the assets, its input, and the shorter side before the crop
NETWORKS = {"mobilenet_v2": (224, 256), "squeezenet1_1": (224, 256), "mobilenet_v1_075_192": (192, 219)}
LITE = "efficientnet_lite0"
BLOCK = 25
RADII = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0)


def model_of(name: str, execution: brinell.Execution) -> Model:
    """A network as a model that gives gradients."""
    if name == LITE:
        return open_model(LITE, execution)
    sys.path.insert(0, str(ASSETS / "models"))
    import nets  # type: ignore[import-not-found]

    size, side = NETWORKS[name]
    return brinell.wrap(nets.load(name)[0], size=size, short_side=side, name=name, execution=execution)


def images(rows: list[int]) -> list[torch.Tensor]:
    """Photographs by their place in the list of files, uint8 (3, H, W) each."""
    files = sorted(IMAGES.glob("*.png"))
    arrays = [np.array(Image.open(files[row]).convert("RGB")) for row in rows]
    return [torch.from_numpy(array).permute(2, 0, 1).contiguous() for array in arrays]


def measure(model: Model, rows: list[int], options: GeometryOptions, batch: int) -> dict[str, Any]:
    """What each search finds of some photographs: by its id, columns as lists."""
    originals = images(rows)
    inputs = torch.stack([model.preprocess.model_input(original) for original in originals])
    ids, labels = torch.tensor(rows), torch.zeros(len(rows), dtype=torch.int64)
    criterion, found = find_criterion("misclassification"), {}
    with torch_alone():
        evaluator = Evaluator.of(model, inputs, ids, labels, criterion=criterion, seed=0, batch=batch, originals=originals)
        for search in select_motions(options):
            began = time.perf_counter()
            columns: Any = evaluator.drive(measure_motion(evaluator.shard(), search, options))
            seconds = round(time.perf_counter() - began, 2)
            found[search.id] = (_drawn if search.method == "random" else _smallest)(columns) | {"seconds": seconds}
    return found


def _smallest(columns: Any) -> dict[str, Any]:
    """The score of each photograph, where one was found, and what it cost."""
    known = _known(columns["score"])
    return {
        "score": [round(value, 5) if there else None for value, there in known],
        **{name: columns[name].tolist() for name in ("queries", "gradients")},
    }


def _drawn(columns: Any) -> dict[str, Any]:
    """By the score of random motions: how many were asked about, how many changed the label, how many were out of reach."""
    status, amount = columns["status"], np.array(columns["amount"].tolist())
    words = np.array([status.categories[code] for code in status.codes.tolist()])
    counts = {}
    for wanted in np.unique(amount):
        own = words[amount == wanted]
        out = int((own == "skipped").sum())
        counts[f"{wanted:g}"] = [len(own) - out, int((own == "broken").sum()), out]
    return {"counts": counts}


def _known(column: Any) -> Iterator[tuple[float, bool]]:
    return zip(column.values.tolist(), column.valid.tolist(), strict=True)


def main() -> None:
    """Measure blocks of photographs while there is time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--block", type=int, default=BLOCK)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "tf32"])
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--networks", nargs="+", default=[*NETWORKS, LITE], choices=[*NETWORKS, LITE])
    parser.add_argument("--methods", nargs="+", default=["manifool", "random"], choices=["manifool", "random"])
    parser.add_argument("--targets", type=int, default=3, help="the paper has 10")
    parser.add_argument("--lengths", type=int, default=10, help="of a step; the paper's scripts have 20")
    parser.add_argument("--longest", type=float, default=1.0, help="step, in pixels; the paper's scripts have 1")
    parser.add_argument("--retry", type=float, default=0.0, help="longest step of a second try; the paper has none")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--draws", type=int, default=5, help="random motions of each score; the paper has 10")
    parser.add_argument("--batch", type=int, default=256)
    given = parser.parse_args()
    require_assets()
    began = time.perf_counter()
    chosen = {
        "targets": given.targets,
        "step_lengths": given.lengths,
        "max_step": given.longest,
        "retry": given.retry,
        "max_steps": given.steps,
        "draws": given.draws,
    }
    options = GeometryOptions(operators=("similarity", "affine"), methods=tuple(given.methods), radii=RADII, **chosen)
    runs = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    kept = next((run for run in runs if run["settings"] == chosen), None)
    if kept is None:
        kept = {"settings": chosen, "blocks": {}}
        runs.append(kept)
    order = list(permutation(len(sorted(IMAGES.glob("*.png"))), 0))[: given.images]
    execution = brinell.Execution(device=given.device, precision=given.precision)
    models = {name: model_of(name, execution) for name in given.networks}
    print(f"{len(models)} networks ready after {time.perf_counter() - began:.0f} s", flush=True)
    last = 0.0
    for start in range(0, len(order), given.block):
        rows = order[start : start + given.block]
        for name, model in models.items():
            own = kept["blocks"].setdefault(name, {})
            key = f"{rows[0]}+{len(rows)}"
            if key in own:
                continue
            if time.perf_counter() - began + last > given.seconds:
                print("no time for another block", flush=True)
                return
            clock = time.perf_counter()
            own[key] = measure(model, rows, options, given.batch)
            last = time.perf_counter() - clock
            RESULTS.write_text(json.dumps(runs) + "\n", encoding="utf-8")
            parts = ", ".join(f"{search} {one['seconds']:.1f} s" for search, one in own[key].items())
            print(f"{name}: {start + len(rows)} photographs; {parts}", flush=True)


if __name__ == "__main__":
    main()
