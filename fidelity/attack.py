"""Find which gradient step could have produced the published curves; the paper (Swingler 2022) gives no code for it.

Operators work on whole grey levels. Here images also stay fractional between steps, as they do without rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import brinell
from brinell.classes import align
from fidelity.compare import Array, area, distance, first_below
from fidelity.experiments import ATTACK, FEW, KERAS, raw_gradients
from fidelity.measure import IMAGES, LITE0, ROOT, Measured, measure, published, published_networks, require_assets
from fidelity.words import format_level, grid, listed

COUNT = FEW // 2  # images
BATCH = 10
RATE = 1_000
SHOWN = 1, 2, 5, 10, 20, 30
B0, INCEPTION = "EfficientNetB0", "InceptionV3"


@dataclass(frozen=True)
class Step:
    """A step: the gradient times a rate; with `probability`, of the label's probability instead of the loss."""

    label: str
    rate: float
    probability: bool = False
    model: str = LITE0


_KERAS = f"{LITE0}&std={KERAS}"
STEPS = {
    "loss": Step(f"the gradient times {RATE:,}, fractional", RATE),
    "loss-3": Step(f"the gradient times {3 * RATE:,}, fractional", 3 * RATE),
    "probability": Step(f"the probability's gradient times {RATE:,}, fractional", RATE, probability=True),
    "loss-keras": Step(f"the gradient times {RATE:,}, fractional, Keras' normalisation", RATE, model=_KERAS),
    "probability-keras": Step(
        f"the probability's gradient times {RATE:,}, fractional, Keras' normalisation", RATE, True, _KERAS
    ),
    # one unit of an input from -1 to 1 is 127.5 grey levels, which enter the gradient and the step
    "probability-scaled": Step(
        f"the probability's gradient times {RATE:,}, fractional, of an input from −1 to 1", RATE * 127.5**2, True
    ),
}


def measure_attacks() -> dict[str, NDArray[np.bool_]]:
    """Return outcomes (images, levels) of each fractional step, stored under runs/fidelity-fractions."""
    require_assets()
    folder = ROOT / "runs" / "fidelity-fractions"
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, step in STEPS.items():
        file = folder / f"{name}.npy"
        if not file.exists():
            np.save(file, _attack(step))
        found[name] = np.load(file)
    return found


def _attack(step: Step) -> NDArray[np.bool_]:
    model, dataset = brinell.open_model(step.model), brinell.open_dataset(IMAGES)
    samples = [dataset[index] for index in range(COUNT)]
    names = [sample.label for sample in samples if sample.label is not None]
    indices = align(names, own=dataset.classes, model=model.classes, outputs=model.outputs)
    labels = torch.tensor([indices[name] for name in names])
    inputs = torch.stack([model.preprocess.model_input(sample.image) for sample in samples]).to(torch.float32)
    right = np.empty((COUNT, 31), bool)
    for start in range(0, COUNT, BATCH):
        rows = slice(start, start + BATCH)
        images, targets = inputs[rows], labels[rows, None]
        for number in range(31):
            scores = model.predict(images)
            right[rows, number] = scores.argmax(1) == targets[:, 0]
            gradient = model.gradient(images, targets[:, 0])
            # d probability = probability x d log probability
            weight = scores.gather(1, targets)[:, :, None, None].clone() if step.probability else 1
            images = (images + step.rate * weight * gradient).clamp(0, 255)
    return right


def attack_facts(main_run: Measured, read: Measured) -> dict[str, Any]:
    """Return the page's figures: a table, the step nearest to B0, and the same step in InceptionV3's scale."""
    whole = measure("attack", list(raw_gradients()), limit=COUNT)
    fractions = {name: right.mean(0) for name, right in measure_attacks().items()}
    default = main_run.among(read).of(f"{ATTACK}:sign").mean(0)
    lines: list[tuple[str, int, Array]] = [
        ("one grey level by the gradient's sign (default)", FEW, default),
        ("the gradient, scaled to the same length (`l2`)", FEW, read.of(f"{ATTACK}:l2").mean(0)),
        *(
            (f"the gradient times {rate:,}, in whole grey levels", COUNT, whole.of(key).mean(0))
            for key, rate in raw_gradients().items()
        ),
        *((STEPS[name].label, COUNT, curve) for name, curve in fractions.items()),
        *((f"*{network}, published*", 590, published(network)[ATTACK]) for network in published_networks()),
    ]
    b0 = published(B0)[ATTACK]
    nearest = min(fractions, key=lambda name: distance(fractions[name], b0))
    assert STEPS[nearest].probability and nearest != "probability-scaled", "the page says that the text's step is nearest"
    scaled = fractions["probability-scaled"]
    return {
        "table": _table(lines),
        "levels": listed(format_level(first_below(published(network)[ATTACK])) for network in published_networks()),
        "nearest": STEPS[nearest].label,
        "distance": (distance(default, b0), distance(fractions[nearest], b0)),
        "count": COUNT,
        "first": (format_level(first_below(fractions[nearest])), format_level(first_below(b0))),
        "areas": (float(area(fractions[nearest])), float(area(b0))),
        "scaled": (scaled[1], scaled[2]),
        "inception": tuple(published(INCEPTION)[ATTACK][1:3]),
    }


def _table(lines: list[tuple[str, int, Array]]) -> str:
    b0, inception = (published(network)[ATTACK] for network in (B0, INCEPTION))
    return grid(
        ["step", "images", *(f"level {shown}" for shown in SHOWN), "first below 50 %", "distance from B0", "InceptionV3"],
        [
            [
                label,
                str(count),
                *(f"{curve[shown]:.2f}" for shown in SHOWN),
                format_level(first_below(curve)),
                f"{distance(curve, b0):.2f}",
                f"{distance(curve, inception):.2f}",
            ]
            for label, count, curve in lines
        ],
    )
