"""Criteria for classifiers: pure functions of a batch of answers, combined with `&`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.classes import Classes, align
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


Rule = Callable[[Verdict, Tensor], Tensor]


@dataclass(frozen=True)
class Criterion:
    """Says for each answer whether it counts as broken, from what was read off it and all its probabilities (N, K).

    `scores` says whether it needs more than the predicted label, which is all that some services give.
    """

    name: str
    rule: Rule
    scores: bool = True

    def __call__(self, answer: Verdict, probabilities: Tensor) -> Tensor:
        """Which answers are broken."""
        return self.rule(answer, probabilities)

    def __and__(self, other: Criterion) -> Criterion:
        return Criterion(
            f"{self.name} & {other.name}",
            lambda answer, probabilities: self(answer, probabilities) & other(answer, probabilities),
            self.scores or other.scores,
        )


Maker = Callable[..., Criterion]
CRITERIA: Registry[Maker] = Registry("criterion")


@CRITERIA.register("misclassification")
def misclassification() -> Criterion:
    """The prediction is not the label."""
    return Criterion("misclassification", lambda answer, _: answer.rank > 0, scores=False)


@CRITERIA.register("top_k_misclassification")
def top_k_misclassification(k: float = 5) -> Criterion:
    """The label is not among the k best classes."""
    return Criterion(f"top_k_misclassification({k:g})", lambda answer, _: answer.rank >= k)


@CRITERIA.register("confident_misclassification")
def confident_misclassification(threshold: float = 0.9) -> Criterion:
    """The prediction is not the label, and the model is at least this sure of it."""
    name = f"confident_misclassification({threshold:g})"
    return Criterion(name, lambda answer, _: (answer.rank > 0) & (answer.confidence >= threshold))


@CRITERIA.register("original_class_confidence_loss")
def original_class_confidence_loss(threshold: float = 0.5) -> Criterion:
    """The label's probability is below the threshold (foolbox: OriginalClassProbability)."""
    name = f"original_class_confidence_loss({threshold:g})"
    return Criterion(name, lambda answer, _: answer.probability < threshold)


@CRITERIA.register("target_class")
def target_class(target: int) -> Criterion:
    """The prediction is this class, given by name or index (foolbox: TargetClass)."""
    return Criterion(f"target_class({target})", lambda answer, _: answer.prediction == target, scores=False)


@CRITERIA.register("target_class_probability")
def target_class_probability(target: int, threshold: float = 0.5) -> Criterion:
    """A class, given by name or index, has more than this probability (foolbox: TargetClassProbability)."""
    name = f"target_class_probability({target}, {threshold:g})"
    return Criterion(name, lambda _, probabilities: probabilities[:, target] > threshold)


def find_criterion(text: str, classes: Classes | None = None, outputs: int | None = None) -> Criterion:
    """A criterion from its name, `name(argument, …)`, or several joined by `&`; a class is given by name or index."""
    parts = [_single(part.strip(), classes, outputs) for part in re.split(r"&(?![^()]*\))", text)]
    joined = parts[0]
    for part in parts[1:]:
        joined = joined & part
    return joined


def _single(text: str, classes: Classes | None, outputs: int | None) -> Criterion:
    match = re.fullmatch(r"(\w+)(?:\((.*)\))?", text)
    if match is None:
        raise ConfigError(f"expected a criterion such as misclassification or top_k_misclassification(5), got {text!r}")
    name, given = match[1], (match[2] or "").strip()
    maker = CRITERIA[name]
    parameters = list(inspect.signature(maker).parameters.values())
    words = [word.strip() for word in given.rsplit(",", max(0, len(parameters) - 1))] if given else []
    if len(words) == 2 and parameters[0].name == "target" and not _is_number(words[1]):
        words = [given]  # a class whose name has a comma
    needed = [parameter.name for parameter in parameters if parameter.default is inspect.Parameter.empty]
    if len(words) < len(needed):
        raise ConfigError(
            f"criterion {name} needs its {needed[len(words)]}: {name}({', '.join(p.name for p in parameters)})"
        )
    try:
        if len(words) > len(parameters):
            raise ValueError(given)
        named = zip(parameters, words, strict=False)
        return maker(*(_class(word, classes, outputs) if p.name == "target" else float(word) for p, word in named))
    except ValueError:
        raise ConfigError(f"criterion {name} can't take {given!r}; {maker.__doc__}") from None


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _class(word: str, classes: Classes | None, outputs: int | None) -> int:
    """The index of a class by its name or number."""
    return int(word) if outputs is None else align([word], own=None, model=classes, outputs=outputs)[word]
