"""Networks before and after hardening, beside the papers' figures: writes docs/fidelity-hardening.md.

    python -m fidelity.hardening --device cuda                                    all of it
    python -m fidelity.hardening --photographs 0 --quick --device cpu             Table 2 on two cores: half an hour
    python -m fidelity.hardening --images 300 --test 60 --photographs 40 --quick  small
    python -m fidelity.hardening --page                                           the page alone, from what was measured

Runs and hardenings lie under runs/fidelity-hardening, so a second call measures nothing again; what was measured is kept in
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

import jinja2

import brinell
from brinell.lenses.geometry.findings import GeometryFindings
from brinell.lenses.highlights.findings import HighlightFindings
from fidelity.hardened_nets import options
from fidelity.measure import ASSETS, IMAGES, ROOT, require_assets
from fidelity.words import grid

RESULTS = Path(__file__).parent / "results" / "hardening.json"
#: seed 2, Table 2: the mean score of the smallest affine motions, before and after one epoch
TABLE_2 = {"original": 1.13, "minimal": 1.78, "random": 1.55, "baseline": 1.10}
RADII = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
#: seed 5, Fig. 8: the paper's recipes, and one of our own
RECIPES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("fine-tuning", {}),
    "set_normalisation": ("with the dataset's mean and standard deviation", {"recipe": "set_normalisation"}),
    "squeeze_excitation": ("with squeeze-and-excitation", {"recipe": "squeeze_excitation"}),
    "gently": (
        "with clean images and fresh spots",
        {"augment": {"operators": ["highlight"], "share": 0.8}, "training": {"clean": True, "rate": 1e-5, "floor": 2}},
    ),
}
HELD_OUT = ["white_fog:published", "jpeg:published", "local_blur:published"]


class Script:
    """What was asked for on the command line."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given = given
        self.execution = {"device": given.device}
        self.out = ROOT / "runs" / "fidelity-hardening"

    def place(self, *words: object) -> str:
        """A folder that is named by what lies in it."""
        return str(self.out / "-".join(map(str, words)))

    def harden(self, config: dict[str, Any], measured: Path | None) -> brinell.Hardened:
        """Carry out a hardening; what the model was before is measured once."""
        before = Path(config["out"]) / "before"
        if measured is not None and not before.exists():
            before.parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(measured, before)
        return brinell.harden(config)

    # ---- ManiFool, Table 2 and Fig. 8 ----

    def cifar(self) -> dict[str, Any]:
        """ResNet-20 hardened on its smallest motions, on random ones of their median score, and on plain images."""
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
            out = self.place("motions", name, *size)
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
        lines: list[dict[str, Any]] = []
        first: Path | None = None
        for name, own in failures.items():
            hardened = self.harden(
                {
                    "model": model,
                    "data": data,
                    "test": test,
                    "failures": own,
                    "parts": {"shares": [1, 0, 0]},
                    # the paper's: momentum 0.9, weight decay 5e-4, batches of 128
                    "training": {
                        "epochs": given.epochs,
                        "batch": 128,
                        "optimiser": "sgd",
                        "rate": given.rate,
                        "weight_decay": 5e-4,
                        "clean": not own,
                    },
                    "measure": [measured],
                    "out": self.place(name, *size, given.test, given.epochs, given.rate),
                    "execution": self.execution,
                },
                first,
            )
            first = first or Path(hardened.folder) / "before"
            if not lines:
                lines.append(_moved("original", hardened, "before"))
            lines.append(_moved(name, hardened, "after"))
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

    # ---- highlights, Fig. 8 ----

    def photographs(self) -> dict[str, Any]:
        """MobileNet V2 hardened on its failures under spots of light, by the paper's three recipes."""
        given, began = self.given, time.monotonic()
        model = options("mobilenet_v2", 224, "imagenet_classes.txt")
        data = {"source": str(IMAGES), "limit": given.photographs, "labels": "index"}
        lens = {"name": "highlights", "operators": ["highlight:exact"]}
        execution = brinell.Execution(**self.execution)
        run = brinell.run(model, data, lens=lens, out=self.place("light", given.photographs), execution=execution)
        failures = self.place("failures", given.photographs)
        if not (Path(failures) / "metadata.jsonl").exists():
            brinell.curate(run, failures, {"every": True, "limit": given.most_failures}, execution=execution)
        pictures = sum(1 for _ in (Path(failures) / "metadata.jsonl").open(encoding="utf-8"))
        lines = []
        first: Path | None = None
        for recipe, (_, own) in RECIPES.items():
            training = {
                # the paper says nothing: the last blocks and the head, by Adam
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
                    "out": self.place(recipe, given.photographs, given.photograph_epochs),
                    "execution": self.execution,
                },
                first,
            )
            first = first or Path(hardened.folder) / "before"
            lines.append(_lit(recipe, hardened))
        return {
            "images": given.photographs,
            "epochs": given.photograph_epochs,
            "pictures": pictures,
            "parts": hardened.record["parts"],
            "seconds": round(time.monotonic() - began, 1),
            "lines": lines,
        }


def _moved(name: str, hardened: brinell.Hardened, side: str) -> dict[str, Any]:
    """What the geometry lens found before or after."""
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
        "score": asdict(one.score),
        "fooled": one.fooled,
        "images": one.fooled + one.failed,
        "middle": found.threshold_score(model, operator),
        "rates": rates,
        "clean": clean.after if after else clean.before,
        "sentence": hardened.verdict.sentence if after else None,
        "epochs": hardened.record["epochs"] if after else None,
    }


def _lit(recipe: str, hardened: brinell.Hardened) -> dict[str, Any]:
    """What changed for held-out originals under spots of light."""
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


# ---- the page ----


def page(found: dict[str, Any]) -> str:
    """The page from what was measured."""
    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined).from_string(
        (Path(__file__).parent / "hardening.md.j2").read_text(encoding="utf-8")
    )
    moved, lit = found.get("cifar", []), found.get("photographs", [])
    return template.render(
        cifar=moved[0] if moved else None,
        table_2=_table_2(moved[0]) if moved else "",
        ordered=[_ordered(run) for run in moved],
        trainings=_trainings(moved),
        photographs=lit[0] if lit else None,
        recipes=_recipes(lit[0]) if lit else "",
        shorter=[(run["epochs"], _recipes(run)) for run in lit[1:]],
    )


def _trainings(runs: list[dict[str, Any]]) -> str:
    """Other trainings beside the first: how far each moved ρ̂, and clean accuracy."""
    rows = []
    for run in runs:
        first, *lines = run["lines"]
        cells = [
            f"{line['score']['value'] / first['score']['value']:.2f} ({100 * (line['clean'] - first['clean']):+.0f})"
            for line in lines
        ]
        how = "quick" if run["quick"] else "full"
        told = [f"{run['images']:,}", str(run["epochs"]), f"{run['rate']:g}", run["batches"], how, f"{run['test']}"]
        rows.append([*told, *cells])
    head = ["images", "epochs", "rate", "batches", "ManiFool", "test images", "minimal", "random", "baseline"]
    return grid(head, rows)


def together(runs: list[dict[str, Any]], run: dict[str, Any]) -> list[dict[str, Any]]:
    """What was measured, with another run in the place of one of the same settings, or after all of them."""
    settings = ("images", "test", "epochs", "rate", "quick", "batches")
    same = [[one.get(name) for name in settings] == [run.get(name) for name in settings] for one in runs]
    return [run if here else one for one, here in zip(runs, same, strict=True)] + ([] if any(same) else [run])


def _table_2(cifar: dict[str, Any]) -> str:
    first = cifar["lines"][0]
    rows = []
    for line in cifar["lines"]:
        score, rate = line["score"], line["rates"]
        at = rate.get("2.5", rate.get(2.5))
        rows.append(
            [
                line["name"],
                f"{line['paper']:.2f}",
                f"{line['score']['value']:.2f} [{score['low']:.2f}, {score['high']:.2f}]",
                f"{line['paper'] / first['paper']:.2f}",
                f"{score['value'] / first['score']['value']:.2f}",
                f"{line['fooled']} of {line['images']}",
                f"{at['value']:.1%}",
                "more than 3" if line["middle"] is None else f"{line['middle']:.2f}",
                f"{line['clean']:.1%}",
            ]
        )
    head = [
        "trained on",
        "paper's ρ̂",
        "ρ̂ here [95 %]",
        "paper, ratio",
        "here, ratio",
        "fooled",
        "wrong at r = 2.5",
        "r̂",
        "clean",
    ]
    return grid(head, rows)


def _ordered(cifar: dict[str, Any]) -> bool:
    scores = {line["name"]: line["score"]["value"] for line in cifar["lines"]}
    return bool(scores["minimal"] > scores["random"] > scores["baseline"])


def _recipes(photographs: dict[str, Any]) -> str:
    def told(effect: dict[str, Any]) -> str:
        change = effect["change"]
        interval = f" [{change['low']:+.1f}, {change['high']:+.1f}]" if change["low"] == change["low"] else ""
        return f"{effect['before']:.1%} → {effect['after']:.1%}, {change['value']:+.1f}{interval}"

    rows = []
    for line in photographs["lines"]:
        before, after = (one.get("1", one.get(1)) for one in line["at_least"])
        cells = [told(line[name]) for name in ("failures", "spots", "held_out", "clean")]
        rows.append([RECIPES[line["recipe"]][0], *cells, f"{before:.1%} → {after:.1%}"])
    return grid(["recipe", "held-out failures", "all spots", "held-out operators", "clean", "S ≥ 1"], rows)


def main() -> None:
    """Measure what was asked for, keep it, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=5000, help="of CIFAR-10 to train on; 0 leaves it out")
    parser.add_argument("--test", type=int, default=500, help="of CIFAR-10 to measure")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--photographs", type=int, default=300, help="0 leaves them out")
    parser.add_argument("--photograph-epochs", type=int, default=10)
    parser.add_argument("--most-failures", type=int, default=2000)
    parser.add_argument("--quick", action="store_true", help="three targets, eight lengths, two draws: for a CPU")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where measurements are kept")
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    found = json.loads(given.results.read_text(encoding="utf-8")) if given.results.exists() else {}
    if not given.page:
        require_assets()
        script = Script(given)
        for name, asked, part in (
            ("cifar", given.images, script.cifar),
            ("photographs", given.photographs, script.photographs),
        ):
            if asked:
                found[name] = together(found.get(name, []), part())
                given.results.parent.mkdir(parents=True, exist_ok=True)
                given.results.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    target = ROOT / "docs" / "fidelity-hardening.md"
    target.write_text(page(found) + "\n", encoding="utf-8")
    print(f"wrote {target.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
