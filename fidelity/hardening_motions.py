"""Harden networks for CIFAR-10 on motions, as in Table 2 and Fig. 8 of the ManiFool paper (CVPR 2018).

Training images are moved in slices, and networks are trained and measured, by several processes at a time. Runs and
hardened models are stored, and finished ones are not repeated.
"""

from __future__ import annotations

import multiprocessing
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import brinell
from brinell.lenses.geometry.findings import GeometryFindings
from fidelity.hardened_nets import options
from fidelity.measure import ASSETS, ROOT

OUT = ROOT / "runs" / "fidelity-hardening"
TRAIN = ASSETS / "images" / "cifar10_train_5000.npz"
TEST = ASSETS / "images" / "cifar10_test_2000.npz"
#: ManiFool (CVPR 2018), Table 2: the mean score of the smallest affine motions, before and after one epoch
TABLE_2 = {"original": 1.13, "minimal": 1.78, "random": 1.55, "baseline": 1.10}
RADII = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
#: what a network is trained on: the kinds of motions, and whether unchanged images are included
RECIPES: dict[str, tuple[tuple[str, ...], bool]] = {
    "minimal": (("minimal",), False),
    "random": (("random",), False),
    "baseline": ((), True),
    "minimal and unchanged": (("minimal",), True),
}
PAPER_RECIPES = ("minimal", "random", "baseline")
QUICK = {"targets": 3, "step_lengths": 8, "max_steps": 25}


@dataclass(frozen=True)
class Study:
    """A network, its training images and how thoroughly they are searched.

    `quick` is the faster ManiFool for training images, `quick_test` for test images.
    """

    network: str = "resnet20"
    train: Path = TRAIN
    images: int = 5000
    piece: int = 1000  # images that are moved in one run
    test: int = 500
    quick: bool = False
    quick_test: bool = False
    device: str = "auto"
    precision: str = "fp32"
    batch: int | None = None

    @property
    def model(self) -> dict[str, Any]:
        """The network as a model of brinell."""
        return options(self.network, 32, "cifar10.txt")

    @property
    def execution(self) -> dict[str, Any]:
        """How runs are executed."""
        return {"device": self.device, "precision": self.precision, "batch": self.batch}

    def lens(self, *, quick: bool) -> dict[str, Any]:
        """Return the options of the geometry lens."""
        return {"name": "geometry", "operators": ["affine"], **(QUICK if quick else {})}

    def folder(self, *words: object) -> Path:
        """Return a folder named by its content."""
        return OUT / "-".join(map(str, (self.network, *words)))

    def motions(self, kind: str, number: int, score: float | None = None) -> Path:
        """Return the folder of the motions of a piece of the training images; random ones have a score."""
        how = "quick" if self.quick else "full"
        return self.folder("motions", kind, self.piece, number, how, *(() if score is None else (f"{score:g}",)))


@dataclass(frozen=True)
class Trial:
    """A training run: what the network is trained on, for how many epochs, and at which rate."""

    study: Study
    recipe: str
    epochs: int
    rate: float
    score: float  # of random motions

    @property
    def folder(self) -> Path:
        """The folder of the hardened model."""
        study = self.study
        how = ("quick" if study.quick else "full", "quick" if study.quick_test else "full")
        name = self.recipe.replace(" ", "_")
        return study.folder(name, study.images, *how, study.test, self.epochs, f"{self.rate:g}")


def move_piece(study: Study, number: int, kind: str, score: float | None = None) -> list[float]:
    """Move a piece of the training images; return the scores of those that were fooled."""
    file = OUT / "pieces" / f"{study.train.stem}-{study.piece}-{number}.npz"
    if not file.exists():
        whole = np.load(study.train)
        part = slice(number * study.piece, min((number + 1) * study.piece, study.images))
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(file, images=whole["images"][part], labels=whole["labels"][part])
    own = {"methods": ["manifool"]} if kind == "minimal" else {"methods": ["random"], "radii": [score], "draws": 1}
    lens = study.lens(quick=study.quick) | own
    execution = brinell.Execution(**study.execution)
    out = study.motions(kind, number, score)
    run = brinell.run(study.model, str(file), lens=lens, out=str(out), execution=execution)
    rows = run.rows("select score from rows where score is not null and status = 'broken'").fetchall()
    return [score for (score,) in rows]


def train(trial: Trial, measured: Path | None) -> dict[str, Any]:
    """Harden a network and return the findings before and after; the state before is taken from `measured`."""
    study, (kinds, clean) = trial.study, RECIPES[trial.recipe]
    before = trial.folder / "before"
    if measured is not None and not before.exists():
        before.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(measured, before)
    pieces = range(-(-study.images // study.piece))
    failures = [
        {"source": str(study.motions("minimal", number)), "moved": "affine:manifool"}
        if kind == "minimal"
        else {"source": str(study.motions("random", number, trial.score)), "moved": "affine:random", "score": trial.score}
        for kind in kinds
        for number in pieces
    ]
    draws = 2 if study.quick_test else 5
    measure = study.lens(quick=study.quick_test) | {"methods": ["manifool", "random"], "radii": RADII, "draws": draws}
    # the paper's: momentum 0.9, weight decay 5e-4, batches of 128
    training = {"epochs": trial.epochs, "batch": 128, "optimiser": "sgd", "rate": trial.rate, "weight_decay": 5e-4}
    hardened = brinell.harden(
        {
            "model": study.model,
            "data": {"source": str(study.train), "limit": study.images},
            "test": {"source": str(TEST), "limit": study.test},
            "failures": failures,
            "parts": {"shares": [1, 0, 0]},
            "training": training | {"clean": clean},
            "measure": [measure],
            "out": str(trial.folder),
            "execution": study.execution,
        }
    )
    return {side: find_motions(trial.recipe, hardened, side) for side in ("before", "after")}


def find_motions(name: str, hardened: brinell.Hardened, side: str) -> dict[str, Any]:
    """Return the findings of the geometry lens before or after."""
    run = brinell.Run(Path(hardened.folder) / side)
    found = run.summary()
    assert isinstance(found, GeometryFindings)
    (one,) = found.smallest.values()
    ((model, operator),) = found.rates
    rates = {rate.score: asdict(rate.changed) for rate in found.rates[model, operator]}
    (clean,) = hardened.effect.of("clean")
    after = side == "after"
    name = name if after else "original"
    return {
        "name": name,
        "paper": TABLE_2.get(name),
        "score": asdict(one.rho_hat),
        "fooled": one.fooled,
        "images": one.fooled + one.failed,
        "middle": found.threshold_score(model, operator),
        "rates": rates,
        "clean": clean.after if after else clean.before,
        "sentence": hardened.effect.sentence if after else None,
        "epochs": hardened.record["epochs"] if after else None,
    }


def measure_trainings(
    study: Study, settings: list[tuple[int, float]], *, recipes: list[str], jobs: int
) -> Iterator[dict[str, Any]]:
    """Yield the findings for each number of epochs and rate, as soon as all recipes are measured."""
    began = time.monotonic()
    pieces = range(-(-study.images // study.piece))
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        baseline = Trial(study, "baseline", *settings[0], 0.0)
        first = pool.submit(train, baseline, None)  # needs no motions, and measures the original network
        moves = _in_parallel(pool, move_piece, [(study, number, "minimal") for number in pieces])
        scores: list[float] = [score for own in moves for score in own]
        score = round(median(scores), 2)
        _in_parallel(pool, move_piece, [(study, number, "random", score) for number in pieces])
        moved = time.monotonic() - began
        first.result()
        before = baseline.folder / "before"
        trials = [Trial(study, recipe, *setting, score) for setting in settings for recipe in recipes]
        waiting: dict[Future[Any], Trial] = {pool.submit(train, trial, before): trial for trial in trials}
        done: dict[Trial, dict[str, Any]] = {}
        for future in as_completed(waiting):
            trial = waiting[future]
            done[trial] = future.result()
            own = [one for one in trials if (one.epochs, one.rate) == (trial.epochs, trial.rate)]
            if all(one in done for one in own):
                lines = [done[own[0]]["before"], *(done[one]["after"] for one in own)]
                seconds = {"motions": round(moved, 1), "all": round(time.monotonic() - began, 1)}
                yield _describe(trial, len(scores)) | {"seconds": seconds, "lines": lines}


def _in_parallel(pool: ProcessPoolExecutor, work: Callable[..., Any], calls: list[tuple[Any, ...]]) -> list[Any]:
    return [future.result() for future in [pool.submit(work, *call) for call in calls]]


def _describe(trial: Trial, fooled: int) -> dict[str, Any]:
    """Return the settings of a training run."""
    study = trial.study
    return {
        "network": study.network,
        "images": study.images,
        "test": study.test,
        "epochs": trial.epochs,
        "rate": trial.rate,
        "quick": study.quick,
        "quick_test": study.quick_test,
        "median": trial.score,
        "moved": {"fooled": fooled, "failed": study.images - fooled},
    }
