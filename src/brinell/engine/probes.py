"""A model's answers on plain images, which recognise it, and how far its answers to the same image differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from brinell.models.model import Model
from brinell.models.probe import probe_images

CLASSES = 5  # of each probe image, the most probable ones
SAME = 0.02  # largest difference between probabilities of one model on two machines, in any precision
# largest difference between two answers to the same image that is called rounding, by precision
ROUNDING = {"bf16": 0.02, "fp16": 0.005, "tf32": 0.005}
REPEATED = 3  # clean images that are queried twice, and one by one


def probe_answers(model: Model) -> dict[str, Any] | None:
    """Return a model's most probable classes on plain images; None for a service, or if they differ from query to query."""
    if model.service is not None:  # which may cost money, and would answer from the cache
        return None
    first, second = _predict(model), _predict(model)
    if not _largest_gap(first, second) <= _rounding(model):
        return None
    best = first.topk(min(CLASSES, model.outputs))
    return {"classes": best.indices.tolist(), "probabilities": [[round(p, 6) for p in row] for row in best.values.tolist()]}


def changed_answer(held: Mapping[str, Any] | None, model: Model) -> str | None:
    """Return how a model answers plain images differently than before, for people; None if it doesn't."""
    if held is None or model.service is not None:
        return None
    before, now = torch.tensor(held["probabilities"]), _predict(model).gather(1, torch.tensor(held["classes"]))
    gaps = (before - now).abs()
    if bool((gaps <= SAME).all()):
        return None
    worst = int(gaps.nan_to_num(2.0).argmax())
    return f"a probability was {before.flatten()[worst]:.3f} and is now {now.flatten()[worst]:.3f}"


def describe_differences(model: Model, inputs: Tensor, batch: int) -> list[str]:
    """Return what is wrong with a model whose answers to some images differ from query to query or from batch to batch."""
    if model.service is not None or len(inputs) == 0:
        return []
    inputs = inputs[:REPEATED].to(model.device)
    together, repeated = model.predict(inputs), model.predict(inputs)
    gap = _largest_gap(together, repeated)
    if gap > _rounding(model):
        return [
            f"{model.name} is not deterministic: two answers to the same image differ by up to {gap:.3f} in probability, "
            "so a rerun gives other rows; does it draw random numbers?"
        ]
    alone = torch.cat([model.predict(image[None]) for image in inputs])
    gap = _largest_gap(together, alone)
    if gap <= _rounding(model):
        return []
    return [
        f"{model.name} depends on the batch: an image alone and in a batch of {len(inputs)} gets probabilities that differ "
        f"by up to {gap:.3f}, so rows depend on the batch size (here {batch}); use --batch 1 for rows that don't"
    ]


def _rounding(model: Model) -> float:
    return ROUNDING.get(model.facts.get("precision", ""), 1e-3)


def _predict(model: Model) -> Tensor:
    return model.predict(probe_images(model.preprocess).to(model.device)).cpu()


def _largest_gap(left: Tensor, right: Tensor) -> float:
    """Return the largest difference; NaN in both is none."""
    gaps = (left - right).abs().masked_fill(left.isnan() & right.isnan(), 0.0)
    return float(gaps.nan_to_num(1.0).max())
