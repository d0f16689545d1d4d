"""What is read off a batch of predictions whose labels are known."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.kernels import kernels_for


@dataclass(frozen=True)
class Verdict:
    """The prediction for each image, and how the true label fared, (N,) each.

    `rank` is the number of classes ranked before the true one, so 0 is correct. `probability` is the true label's,
    `confidence` the prediction's.
    """

    prediction: Tensor
    confidence: Tensor
    rank: Tensor
    probability: Tensor


def verdict(probabilities: Tensor, labels: Tensor) -> Verdict:
    """Return predictions, ranks and probabilities for a batch (N, K)."""
    plain = probabilities.dtype == torch.float32 and probabilities.numel() > 0
    kernels = kernels_for("verdict", probabilities) if plain else None
    if kernels is not None:
        return Verdict(*kernels.verdict(probabilities, labels))
    confidence, prediction = probabilities.max(1)
    own = probabilities.gather(1, labels[:, None])
    # ties rank by index, as in argmax
    tied_before = (probabilities == own) & (torch.arange(probabilities.shape[1], device=own.device) < labels[:, None])
    rank = ((probabilities > own) | tied_before).sum(1)
    return Verdict(prediction, confidence, rank, own[:, 0])


def verdict_of_detector(probabilities: Tensor, labels: Tensor) -> Verdict:
    """Return the same for a detector, for which a score of 0 means that a class was not found.

    Such a class ranks after all classes that were found, and never first. If nothing was found, the prediction is -1.
    """
    plain = verdict(probabilities, labels)
    found = (probabilities > 0).sum(1)
    return Verdict(
        prediction=plain.prediction.masked_fill(found == 0, -1),
        confidence=plain.confidence,
        rank=torch.where(plain.probability == 0, found.clamp(min=1), plain.rank),
        probability=plain.probability,
    )
