"""Compare networks before and after hardening with the papers' figures; writes docs/fidelity-hardening.md.

    python -m fidelity.hardening --device cuda                                    everything
    python -m fidelity.hardening --photographs 0 --quick --device cpu             Table 2 on two cores: half an hour
    python -m fidelity.hardening --images 300 --test 60 --photographs 40 --quick  small
    python -m fidelity.hardening --page                                           the page alone, from stored results

Runs and hardened models are stored under runs/fidelity-hardening, and finished ones are not repeated. Results are stored in
fidelity/results/hardening.json, from which the page can be written on another machine.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import brinell
from brinell.lenses.geometry.findings import GeometryFindings
from brinell.lenses.highlights.findings import HighlightFindings
from fidelity.hardened_nets import options
from fidelity.hardening_page import page
from fidelity.measure import ASSETS, IMAGES, ROOT, require_assets

RESULTS = Path(__file__).parent / "results" / "hardening.json"
#: ManiFool (CVPR 2018), Table 2: the mean score of the smallest affine motions, before and after one epoch
TABLE_2 = {"original": 1.13, "minimal": 1.78, "random": 1.55, "baseline": 1.10}
RADII = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
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


class Script:
    """The measurements, as the command line requests them."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.execution = {"device": given.device}
        self.out = ROOT / "runs" / "fidelity-hardening"

    def folder(self, *words: object) -> str:
        """Return a folder named by its content."""
        return str(self.out / "-".join(map(str, words)))

    def harden(self, config: dict[str, Any], measured: Path | None) -> brinell.Hardened:
        """Harden a model; the state before is measured once."""
        before = Path(config["out"]) / "before"
        if measured is not None and not before.exists():
            before.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(measured, before)
        return brinell.harden(config)

    # ---- ManiFool, Table 2 and Fig. 8 ----

    def cifar(self) -> dict[str, Any]:
        """Harden ResNet-20 on its smallest motions, on random ones of their median score, and on unchanged images."""
        given, began = self.given, time.monotonic()
        model = options("resnet20", 32, "cifar10.txt")
        data = {"source": str(ASSETS / "images" / "cifar10_train_5000.npz"), "limit": given.images}
        test = {"source": str(ASSETS / "images" / "cifar10_test_2000.npz"), "limit": given.test}
        lens: dict[str, Any] = {"name": "geometry", "operators": ["affine"]}
        if given.quick:
            lens |= {"targets": 3, "step_lengths": 8, "max_steps": 25}
        size = (given.images, "quick" if given.quick else "full")
        execution = brinell.Execution(**self.execution)

        def moving(name: str, **own: Any) -> brinell.Run:
            out = self.folder("motions", name, *size)
            return brinell.run(model, data, lens=lens | own, out=out, execution=execution)

        minimal = moving("minimal", methods=["manifool"])
        found = minimal.summary()
        assert isinstance(found, GeometryFindings)
        (smallest,) = found.smallest.values()
        median = round(smallest.median or 1.04, 2)
        random = moving("random", methods=["random"], radii=[median], draws=1)
        made = time.monotonic() - began
        failures: dict[str, list[dict[str, Any]]] = {
            "minimal": [{"source": minimal.folder, "moved": "affine:manifool"}],
            "random": [{"source": random.folder, "moved": "affine:random", "score": median}],
            "baseline": [],
        }
        measured = lens | {"methods": ["manifool", "random"], "radii": RADII, "draws": 2 if given.quick else 10}
        common = {"model": model, "data": data, "test": test, "measure": [measured]}
        lines = self._train_on_motions(common, failures, size)
        return {
            "images": given.images,
            "test": given.test,
            "epochs": given.epochs,
            "rate": given.rate,
            "quick": given.quick,
            "batches": "of one size",
            "median": median,
            "moved": {"fooled": smallest.fooled, "failed": smallest.failed},
            "seconds": {"motions": round(made, 1), "all": round(time.monotonic() - began, 1)},
            "lines": lines,
        }

    def _train_on_motions(
        self, common: dict[str, Any], failures: dict[str, list[dict[str, Any]]], size: tuple[Any, ...]
    ) -> list[dict[str, Any]]:
        """Harden on each set of failures; return the findings for the original and the hardened networks."""
        given = self.given
        lines: list[dict[str, Any]] = []
        first: Path | None = None
        for name, own in failures.items():
            # the paper's: momentum 0.9, weight decay 5e-4, batches of 128
            training = {"epochs": given.epochs, "batch": 128, "optimiser": "sgd", "rate": given.rate, "weight_decay": 5e-4}
            config = common | {
                "failures": own,
                "parts": {"shares": [1, 0, 0]},
                "training": training | {"clean": not own},
                "out": self.folder(name, *size, given.test, given.epochs, given.rate),
                "execution": self.execution,
            }
            hardened = self.harden(config, first)
            first = first or Path(hardened.folder) / "before"
            if not lines:
                lines.append(_motion_findings("original", hardened, "before"))
            lines.append(_motion_findings(name, hardened, "after"))
        return lines

    # ---- specular highlights, Fig. 8 ----

    def photographs(self) -> dict[str, Any]:
        """Harden MobileNet V2 on its failures under specular highlights, by the paper's three recipes and ours."""
        given, began = self.given, time.monotonic()
        model = options("mobilenet_v2", 224, "imagenet_classes.txt")
        data = {"source": str(IMAGES), "limit": given.photographs, "labels": "index"}
        lens = {"name": "highlights", "operators": ["highlight:exact"]}
        execution = brinell.Execution(**self.execution)
        run = brinell.run(model, data, lens=lens, out=self.folder("light", given.photographs), execution=execution)
        failures = self.folder("failures", given.photographs)
        if not (Path(failures) / "metadata.jsonl").exists():
            brinell.curate(run, failures, {"every": True, "limit": given.most_failures}, execution=execution)
        pictures = sum(1 for _ in (Path(failures) / "metadata.jsonl").open(encoding="utf-8"))
        lines = []
        first: Path | None = None
        for recipe, own in RECIPES.items():
            training = {
                # not stated in the paper: the last blocks and the head, by Adam
                "epochs": given.photograph_epochs,
                "batch": 32,
                "rate": 1e-4,
                "layers": ["features.1[6-9]", "head"],
                "clean": False,
            }
            hardened = self.harden(
                {
                    "model": model,
                    "data": data,
                    "failures": {"source": failures, "labels": "index"},
                    "parts": {"small_classes": "pool"},
                    **own,
                    "training": training | own.get("training", {}),
                    "measure": [lens, {"name": "profile", "operators": HELD_OUT, "levels": 5}],
                    "out": self.folder(recipe, given.photographs, given.photograph_epochs),
                    "execution": self.execution,
                },
                first,
            )
            first = first or Path(hardened.folder) / "before"
            lines.append(_highlight_findings(recipe, hardened))
        return {
            "images": given.photographs,
            "epochs": given.photograph_epochs,
            "pictures": pictures,
            "parts": hardened.record["parts"],
            "seconds": round(time.monotonic() - began, 1),
            "lines": lines,
        }


def _motion_findings(name: str, hardened: brinell.Hardened, side: str) -> dict[str, Any]:
    """Return the findings of the geometry lens before or after."""
    run = brinell.Run(Path(hardened.folder) / side)
    found = run.summary()
    assert isinstance(found, GeometryFindings)
    (one,) = found.smallest.values()
    ((model, operator),) = found.rates
    rates = {rate.score: asdict(rate.changed) for rate in found.rates[model, operator]}
    (clean,) = hardened.verdict.of("clean")
    after = side == "after"
    return {
        "name": name,
        "paper": TABLE_2[name],
        "score": asdict(one.rho_hat),
        "fooled": one.fooled,
        "images": one.fooled + one.failed,
        "middle": found.threshold_score(model, operator),
        "rates": rates,
        "clean": clean.after if after else clean.before,
        "sentence": hardened.verdict.sentence if after else None,
        "epochs": hardened.record["epochs"] if after else None,
    }


def _highlight_findings(recipe: str, hardened: brinell.Hardened) -> dict[str, Any]:
    """Return the changes for held-out originals under specular highlights."""
    glares = []
    for side in ("before", "after"):
        found = brinell.Run(Path(hardened.folder) / side).findings()["highlights"]
        assert isinstance(found, HighlightFindings)
        glares.append(next(iter(found.glare.values())))
    effects = {effect.group: asdict(effect) for effect in hardened.verdict.effects}
    spots = next(asdict(effect) for effect in hardened.verdict.effects if effect.measure == "glare")
    return {
        "recipe": recipe,
        "failures": effects["failures"],
        "spots": spots,
        "held_out": effects["held out"],
        "clean": effects["clean"],
        "at_least": [{k: one.value for k, one in glare.at_least.items()} for glare in glares],
        "sentence": hardened.verdict.sentence,
        "epochs": hardened.record["epochs"],
    }


def merge_run(runs: list[dict[str, Any]], run: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the runs with another one, which replaces a run of the same settings."""
    settings = ("images", "test", "epochs", "rate", "quick", "batches")
    same = [[one.get(name) for name in settings] == [run.get(name) for name in settings] for one in runs]
    return [run if here else one for one, here in zip(runs, same, strict=True)] + ([] if any(same) else [run])


def main() -> None:
    """Measure, store the results, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=5000, help="CIFAR-10 images to train on (0: skip)")
    parser.add_argument("--test", type=int, default=500, help="CIFAR-10 images to evaluate")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--photographs", type=int, default=300, help="photographs (0: skip)")
    parser.add_argument("--photograph-epochs", type=int, default=10)
    parser.add_argument("--most-failures", type=int, default=2000)
    parser.add_argument("--quick", action="store_true", help="three targets, eight step lengths, two draws: for a CPU")
    parser.add_argument("--page", action="store_true", help="write the page without measuring")
    parser.add_argument("--results", type=Path, default=RESULTS, help="file of results")
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    found = json.loads(given.results.read_text(encoding="utf-8")) if given.results.exists() else {}
    if not given.page:
        require_assets()
        script = Script(given)
        for name, images, measure in (
            ("cifar", given.images, script.cifar),
            ("photographs", given.photographs, script.photographs),
        ):
            if images:
                found[name] = merge_run(found.get(name, []), measure())
                given.results.parent.mkdir(parents=True, exist_ok=True)
                given.results.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    target = ROOT / "docs" / "fidelity-hardening.md"
    target.write_text(page(found) + "\n", encoding="utf-8")
    print(f"wrote {target.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
