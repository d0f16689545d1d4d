"""The exact search for the smallest breaking change, compared with the bare model and with foolbox's linear searches."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import foolbox
import torch
from torch import Tensor, nn

import brinell
from benchmarks.accelerator import search_property
from benchmarks.end_to_end import per_second
from benchmarks.photographs import photographs
from benchmarks.processor import MODEL
from brinell.config.execution import Execution
from brinell.criteria.criterion import find_criterion
from brinell.engine.evaluator import Evaluator
from brinell.engine.threads import answers, torch_alone
from brinell.engine.tuning import best_batch
from brinell.models.model import Model
from brinell.perturb.property import property_names
from brinell.types import id_number, image_id

IMAGES, POINTS, ROUNDS = 96, 50, 2


def measure() -> dict[str, Any]:
    """Compare forward passes per second in the search with the bare model, by property; then with foolbox."""
    images = photographs(IMAGES)
    model = brinell.open_model(MODEL, Execution())
    inputs = torch.stack([model.preprocess.model_input(image) for image in images])
    ids = torch.tensor([id_number(image_id(image)) for image in images])
    with torch_alone():
        labels = answers(model, inputs, 8).argmax(1)
        batch = best_batch(model)
        criterion = find_criterion("misclassification")
        evaluator = Evaluator.of(model, inputs, ids, labels, criterion=criterion, seed=0, batch=batch)
        rounds = [_round(evaluator, inputs) for _ in range(ROUNDS)]
        peers = _compare_foolbox(model, evaluator, inputs, labels)
    names = list(rounds[0]["rates"])
    return {
        "model": MODEL,
        "images": IMAGES,
        "points": POINTS,
        "batch": batch,
        "rounds": [one["ratio"] for one in rounds],
        "ratio": median(one["ratio"] for one in rounds),
        "properties": {name: median(one["rates"][name] for one in rounds) for name in names},
        "foolbox": peers,
    }


def _round(evaluator: Evaluator, inputs: Tensor) -> dict[str, Any]:
    """Search every property once, with measurements of the bare model before and after each."""

    def bare() -> float:  # in parallel on all cores, as in a run: the fastest option (see `processor`)
        return per_second(lambda: len(answers(evaluator.model, inputs, evaluator.batch)), 1.5)

    rates, seconds_bare, spent = {}, 0.0, 0.0
    before = bare()
    for name in property_names():
        queries, seconds, _ = search_property(evaluator, name, points=POINTS)
        after = bare()
        rates[name] = queries / seconds / ((before + after) / 2)
        spent += seconds
        seconds_bare += queries / ((before + after) / 2)
        before = after
    return {"rates": rates, "ratio": seconds_bare / spent}


class _Counted(nn.Module):
    """The same network for foolbox, counting queries."""

    def __init__(self, model: Model, batch: int) -> None:
        super().__init__()
        self.model, self.batch, self.queries = model, batch, 0

    def forward(self, images: Tensor) -> Tensor:
        self.queries += len(images)
        return answers(self.model, images.mul(255).round().clamp(0, 255).to(torch.uint8), self.batch).clamp(min=1e-9).log()


def _compare_foolbox(model: Model, evaluator: Evaluator, inputs: Tensor, labels: Tensor) -> list[dict[str, Any]]:
    """Compare the four linear searches that both packages have, with the same number of steps."""
    attacks: dict[str, Callable[[], Any]] = {
        "gaussian_blur": lambda: foolbox.attacks.GaussianBlurAttack(steps=POINTS, max_sigma=0.2 * inputs.shape[-1]),
        "contrast": lambda: foolbox.attacks.LinearSearchContrastReductionAttack(steps=POINTS),
        "salt_and_pepper": lambda: foolbox.attacks.SaltAndPepperNoiseAttack(steps=POINTS),
        "blended_noise": lambda: foolbox.attacks.LinearSearchBlendedUniformNoiseAttack(steps=POINTS, directions=10),
    }
    counted = _Counted(model, evaluator.batch).eval()
    peer = foolbox.PyTorchModel(counted, bounds=(0, 1), device="cpu")
    clean = inputs.to(torch.float32) / 255
    found = []
    for name, make in attacks.items():
        counted.queries, start = 0, time.perf_counter()
        _, _, success = make()(peer, clean, labels, epsilons=None)
        seconds = time.perf_counter() - start
        queries, ours, broken = search_property(evaluator, name, points=POINTS)
        found.append(
            {
                "name": name,
                "foolbox_seconds": seconds,
                "foolbox_queries": counted.queries,
                "foolbox_broken": int(success.sum()),
                "seconds": ours,
                "queries": queries,
                "broken": broken,
            }
        )
    return found
