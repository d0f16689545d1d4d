"""Compare networks before and after hardening with the papers' figures; writes docs/fidelity-hardening.md.

    python -m fidelity.hardening motions --device cuda --jobs 8 --trainings 5:0.01 1:0.01 20:0.01
    python -m fidelity.hardening motions --quick --quick-test --device cpu        Table 2 on two cores: half an hour
    python -m fidelity.hardening motions --network resnet18 --train cifar10_train_50000.npz --images 20000 --device cuda
    python -m fidelity.hardening highlights --device cuda
    python -m fidelity.hardening page                                             from stored results

A training is given as EPOCHS:RATE. Runs and hardened models are stored under runs/fidelity-hardening, and finished ones
are not repeated. Results are stored in fidelity/results/hardening.json.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import brinell
from brinell.lenses.highlights.findings import HighlightFindings
from fidelity import hardening_motions
from fidelity.hardened_nets import options
from fidelity.hardening_motions import OUT, PAPER_RECIPES, Study, measure_trainings
from fidelity.hardening_page import page
from fidelity.measure import IMAGES, ROOT, require_assets

RESULTS = Path(__file__).parent / "results" / "hardening.json"
PAGE = ROOT / "docs" / "fidelity-hardening.md"
#: specular highlights (Vats and Jerripothula 2023), Fig. 8: the paper's recipes, and ours
RECIPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "set_normalisation": {"recipe": "set_normalisation"},
    "squeeze_excitation": {"recipe": "squeeze_excitation"},
    "gently": {
        "augment": {"operators": ["highlight"], "share": 0.8},
        "training": {"clean": True, "rate": 1e-5, "floor": 2},
    },
}
HELD_OUT = ["white_fog:published", "jpeg:published", "local_blur:published"]


def harden_on_motions(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the findings of each training on motions."""
    study = Study(
        network=given.network,
        train=given.train,
        images=given.images,
        piece=given.piece,
        test=given.test,
        quick=given.quick,
        quick_test=given.quick_test,
        device=given.device,
        precision=given.precision,
        batch=given.batch,
    )
    trainings = [(int(epochs), float(rate)) for epochs, rate in (one.split(":") for one in given.trainings)]
    yield from measure_trainings(study, trainings, recipes=given.recipes, jobs=given.jobs)


def harden_on_highlights(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the findings of MobileNet V2 hardened on its failures under highlights, by the paper's recipes and ours."""
    began = time.monotonic()
    model = options("mobilenet_v2", 224, "imagenet_classes.txt")
    data = {"source": str(IMAGES), "limit": given.photographs, "labels": "index"}
    lens = {"name": "highlights", "operators": ["highlight:exact"]}
    execution = brinell.Execution(device=given.device, batch=given.batch)
    light = _folder("light", given.photographs)
    run = brinell.run(model, data, lens=lens, out=str(light), execution=execution)
    failures = _folder("failures", given.photographs)
    if not (failures / "metadata.jsonl").exists():
        brinell.curate(run, str(failures), {"every": True, "limit": given.most_failures}, execution=execution)
    pictures = sum(1 for _ in (failures / "metadata.jsonl").open(encoding="utf-8"))
    first: Path | None = None
    for epochs in given.epochs:
        # not stated in the paper: the last blocks and the head, by Adam
        training = {"epochs": epochs, "batch": 32, "rate": 1e-4, "layers": ["features.1[6-9]", "head"], "clean": False}
        lines = []
        for recipe, own in RECIPES.items():
            config = {
                "model": model,
                "data": data,
                "failures": {"source": str(failures), "labels": "index"},
                "parts": {"small_classes": "pool"},
                **own,
                "training": training | own.get("training", {}),
                "measure": [lens, {"name": "profile", "operators": HELD_OUT, "levels": 5}],
                "out": str(_folder(recipe, given.photographs, epochs)),
                "execution": {"device": given.device, "batch": given.batch},
            }
            hardened = _harden(config, first)
            first = first or Path(hardened.folder) / "before"
            lines.append(_highlight_findings(recipe, hardened))
        yield {
            "images": given.photographs,
            "epochs": epochs,
            "pictures": pictures,
            "parts": hardened.record["parts"],
            "seconds": round(time.monotonic() - began, 1),
            "lines": lines,
        }


def _folder(*words: object) -> Path:
    return OUT / "-".join(map(str, words))


def _harden(config: dict[str, Any], measured: Path | None) -> brinell.Hardened:
    """Harden a model; the state before is measured once."""
    before = Path(config["out"]) / "before"
    if measured is not None and not before.exists():
        before.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(measured, before)
    return brinell.harden(config)


def _highlight_findings(recipe: str, hardened: brinell.Hardened) -> dict[str, Any]:
    """Return the changes for held-out originals under specular highlights."""
    glares = []
    for side in ("before", "after"):
        found = brinell.Run(Path(hardened.folder) / side).findings()["highlights"]
        assert isinstance(found, HighlightFindings)
        glares.append(next(iter(found.glare.values())))
    effects = {effect.group: asdict(effect) for effect in hardened.effect.effects}
    spots = next(asdict(effect) for effect in hardened.effect.effects if effect.measure == "glare")
    return {
        "recipe": recipe,
        "failures": effects["failures"],
        "spots": spots,
        "held_out": effects["held out"],
        "clean": effects["clean"],
        "at_least": [{k: one.value for k, one in glare.at_least.items()} for glare in glares],
        "sentence": hardened.effect.sentence,
        "epochs": hardened.record["epochs"],
    }


def merge_run(runs: list[dict[str, Any]], run: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the runs with another one, which replaces a run of the same settings."""
    settings = ("network", "images", "test", "epochs", "rate", "quick", "quick_test")
    same = [[one.get(name) for name in settings] == [run.get(name) for name in settings] for one in runs]
    return [run if here else one for one, here in zip(runs, same, strict=True)] + ([] if any(same) else [run])


def store(name: str, run: dict[str, Any], results: Path) -> None:
    """Add a run to the results; several processes may."""
    results.parent.mkdir(parents=True, exist_ok=True)
    with results.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = json.loads(results.read_text(encoding="utf-8")) if results.exists() else {}
        found[name] = merge_run(found.get(name, []), run)
        results.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    results.with_suffix(".lock").unlink(missing_ok=True)


def parse_arguments() -> argparse.Namespace:
    """Return the command line's arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["motions", "highlights", "page"])
    parser.add_argument("--network", default="resnet20", choices=["resnet20", "resnet56", "resnet18"])
    parser.add_argument("--train", type=Path, default=hardening_motions.TRAIN, help="CIFAR-10 images to train on, .npz")
    parser.add_argument("--images", type=int, default=5000, help="how many of them")
    parser.add_argument("--piece", type=int, default=1000, help="training images that one process moves at a time")
    parser.add_argument("--test", type=int, default=500, help="CIFAR-10 images to evaluate")
    parser.add_argument("--trainings", nargs="+", default=["5:0.01"], metavar="EPOCHS:RATE")
    parser.add_argument("--recipes", nargs="+", default=list(PAPER_RECIPES), choices=list(hardening_motions.RECIPES))
    parser.add_argument("--quick", action="store_true", help="a faster ManiFool for training images")
    parser.add_argument("--quick-test", action="store_true", help="the same for test images, and two draws")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "tf32"])
    parser.add_argument("--batch", type=int)
    parser.add_argument("--photographs", type=int, default=300)
    parser.add_argument("--epochs", type=int, nargs="+", default=[10, 1], help="of training on highlights")
    parser.add_argument("--most-failures", type=int, default=2000)
    parser.add_argument("--results", type=Path, default=RESULTS, help="file of results")
    parser.add_argument("--device", default="auto")
    return parser.parse_args()


def main() -> None:
    """Measure and store the results, or write the page."""
    given = parse_arguments()
    if given.what == "page":
        PAGE.write_text(page(json.loads(given.results.read_text(encoding="utf-8"))), encoding="utf-8")
        print(f"wrote {PAGE.relative_to(ROOT)}")
        return
    require_assets()
    name, measure = {"motions": ("cifar", harden_on_motions), "highlights": ("photographs", harden_on_highlights)}[
        given.what
    ]
    for run in measure(given):
        store(name, run, given.results)
        print(f"stored {name}: " + ", ".join(f"{key} {value}" for key, value in run.items() if key != "lines"), flush=True)


if __name__ == "__main__":
    main()
