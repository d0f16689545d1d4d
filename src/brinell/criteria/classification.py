"""Criteria for classifiers: pure functions of a batch of answers, combined with `&`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.errors import ConfigError
from brinell.registry import Registry


@dataclass(frozen=True)
class Verdict:
    """What is read from a batch of answers about known labels, (N,) each.

    `rank` is the number of classes placed before the true one: 0 means right. `probability` is the true label's,
    `confidence` the prediction's.
    """

    prediction: Tensor
    confidence: Tensor
    rank: Tensor
    probability: Tensor


def verdict(probabilities: Tensor, labels: Tensor) -> Verdict:
    """Read predictions, ranks and probabilities off a batch (N, K)."""
    confidence, prediction = probabilities.max(1)
    own = probabilities.gather(1, labels[:, None])
    # equal scores stand in the order of their index, as argmax has it
    tied_before = (probabilities == own) & (torch.arange(probabilities.shape[1], device=own.device) < labels[:, None])
    rank = ((probabilities > own) | tied_before).sum(1)
    return Verdict(prediction, confidence, rank, own[:, 0])


@dataclass(frozen=True)
class Criterion:
    """Says for each answer whether it counts as broken."""

    name: str
    rule: Callable[[Verdict], Tensor]

    def __call__(self, answer: Verdict) -> Tensor:
        """Which answers are broken."""
        return self.rule(answer)

    def __and__(self, other: Criterion) -> Criterion:
        return Criterion(f"{self.name} & {other.name}", lambda answer: self(answer) & other(answer))


Maker = Callable[..., Criterion]
CRITERIA: Registry[Maker] = Registry("criterion")


@CRITERIA.register("misclassification")
def misclassification() -> Criterion:
    """The prediction is not the label."""
    return Criterion("misclassification", lambda answer: answer.rank > 0)


@CRITERIA.register("top_k_misclassification")
def top_k_misclassification(k: float = 5) -> Criterion:
    """The label is not among the k best classes."""
    return Criterion(f"top_k_misclassification({k:g})", lambda answer: answer.rank >= k)


@CRITERIA.register("confident_misclassification")
def confident_misclassification(threshold: float = 0.9) -> Criterion:
    """The prediction is not the label, and the model is at least this sure of it."""
    name = f"confident_misclassification({threshold:g})"
    return Criterion(name, lambda answer: (answer.rank > 0) & (answer.confidence >= threshold))


def find_criterion(text: str) -> Criterion:
    """A criterion from its name, `name(number)`, or several joined by `&`."""
    parts = [_single(part.strip()) for part in text.split("&")]
    joined = parts[0]
    for part in parts[1:]:
        joined = joined & part
    return joined


def _single(text: str) -> Criterion:
    match = re.fullmatch(r"(\w+)(?:\(([^()]*)\))?", text)
    if match is None:
        raise ConfigError(f"expected a criterion such as misclassification or top_k_misclassification(5), got {text!r}")
    name, number = match[1], (match[2] or "").strip()
    maker = CRITERIA[name]
    try:
        return maker(float(number)) if number else maker()
    except (TypeError, ValueError):
        raise ConfigError(f"criterion {name} can't take {number!r}; {maker.__doc__}") from None
