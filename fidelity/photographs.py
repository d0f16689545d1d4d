"""A row of Fig. 7 of the ManiFool paper (CVPR 2018): networks of the test assets on photographs, similarity and affine.

    python -m fidelity.photographs --images 300 --device cuda
    python -m fidelity.photographs --images 25 --retry 8 --methods manifool --networks mobilenet_v2

Every network is searched on the same photographs, in blocks, with both groups, by ManiFool and by random motions. Results
are stored after every block in fidelity/results/photographs.json, separately for each choice of settings; existing blocks
are not repeated. Networks take turns until the time is up, so all of them get about the same number of photographs. A
photograph that is not fooled costs 50 steps for each of 3 targets, about 13 forward passes each.
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
    """Return a network as a model with gradients."""
    if name == LITE:
        return open_model(LITE, execution)
    sys.path.insert(0, str(ASSETS / "models"))
    import nets  # type: ignore[import-not-found]

    size, side = NETWORKS[name]
    return brinell.wrap(nets.load(name)[0], size=size, short_side=side, name=name, execution=execution)


def images(rows: list[int]) -> list[torch.Tensor]:
    """Return photographs by their index in the list of files, uint8 (3, H, W) each."""
    files = sorted(IMAGES.glob("*.png"))
    arrays = [np.array(Image.open(files[row]).convert("RGB")) for row in rows]
    return [torch.from_numpy(array).permute(2, 0, 1).contiguous() for array in arrays]


def measure(model: Model, rows: list[int], options: GeometryOptions, batch: int) -> dict[str, Any]:
    """Return the results of each search on some photographs: columns as lists, by the search's id."""
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
    """Return the score of each photograph, if one was found, and its cost."""
    known = _known(columns["score"])
    return {
        "score": [round(value, 5) if there else None for value, there in known],
        **{name: columns[name].tolist() for name in ("queries", "gradients")},
    }


def _drawn(columns: Any) -> dict[str, Any]:
    """Return counts by score of random motions: tried, label changed, out of reach."""
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
    """Measure blocks of photographs until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=300)
    parser.add_argument("--block", type=int, default=BLOCK)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "tf32"])
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--networks", nargs="+", default=[*NETWORKS, LITE], choices=[*NETWORKS, LITE])
    parser.add_argument("--methods", nargs="+", default=["manifool", "random"], choices=["manifool", "random"])
    parser.add_argument("--targets", type=int, default=3, help="paper: 10")
    parser.add_argument("--step-lengths", type=int, default=10, help="step lengths (paper's scripts: 20)")
    parser.add_argument("--max-step", type=float, default=1.0, help="longest step in pixels (paper's scripts: 1)")
    parser.add_argument("--retry", type=float, default=0.0, help="longest step of a retry (paper: none)")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--draws", type=int, default=5, help="random motions per score (paper: 10)")
    parser.add_argument("--batch", type=int, default=256)
    given = parser.parse_args()
    require_assets()
    began = time.perf_counter()
    chosen = {
        "targets": given.targets,
        "step_lengths": given.step_lengths,
        "max_step": given.max_step,
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
                print("time is up", flush=True)
                return
            clock = time.perf_counter()
            own[key] = measure(model, rows, options, given.batch)
            last = time.perf_counter() - clock
            RESULTS.write_text(json.dumps(runs) + "\n", encoding="utf-8")
            parts = ", ".join(f"{search} {one['seconds']:.1f} s" for search, one in own[key].items())
            print(f"{name}: {start + len(rows)} photographs; {parts}", flush=True)


if __name__ == "__main__":
    main()
