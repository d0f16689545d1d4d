"""Criteria for classifiers. They apply to detectors, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brinell.criteria.criterion import (
    CLASS_CHANGED,
    CRITERIA,
    LOST,
    Answer,
    Criterion,
    Explanation,
    Namer,
    format_compared,
)
from brinell.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor


@CRITERIA.register("misclassification")
def misclassification() -> Criterion:
    """The prediction is not the label."""
    return Criterion("misclassification", lambda answer: answer.verdict.rank > 0, scores=False, cause=_other_class)


@CRITERIA.register("same_answer")
def same_answer() -> Criterion:
    """The answer differs from that on the clean image (with --labels prediction; for models that answer freely)."""
    return Criterion("same_answer", lambda answer: answer.verdict.rank > 0, scores=False, clean=True)


@CRITERIA.register("top_k_misclassification")
def top_k_misclassification(k: float = 5) -> Criterion:
    """The label is not among the k best classes."""
    if k < 1 or k != int(k):
        raise ConfigError(f"top_k_misclassification expects a whole number of classes (1 or more), got {k:g}")
    explain = _explain("the true class has rank {rank}, not among the best {threshold:g}", k)
    return Criterion(f"top_k_misclassification({k:g})", lambda answer: answer.verdict.rank >= k, explain=explain)


@CRITERIA.register("confident_misclassification")
def confident_misclassification(threshold: float = 0.9) -> Criterion:
    """The prediction is not the label, and its confidence is at least the threshold."""
    name = f"confident_misclassification({_checked(threshold):g})"
    return Criterion(
        name,
        lambda answer: (answer.verdict.rank > 0) & (answer.verdict.confidence >= threshold),
        cause=_other_class,
        explain=_explain("class changed to {prediction}; its score {confidence} is at least {threshold:g}", threshold),
    )


@CRITERIA.register("original_class_confidence_loss")
def original_class_confidence_loss(threshold: float = 0.5) -> Criterion:
    """The label's probability is below the threshold (foolbox: OriginalClassProbability)."""
    name = f"original_class_confidence_loss({_checked(threshold):g})"
    explain = _explain("the true class's score {probability} is below {threshold:g}", threshold)
    return Criterion(name, lambda answer: answer.verdict.probability < threshold, explain=explain)


@CRITERIA.register("target_class")
def target_class(target: int) -> Criterion:
    """The prediction is the target class, given by name or index (foolbox: TargetClass)."""
    return Criterion(f"target_class({target})", lambda answer: answer.verdict.prediction == target, scores=False)


@CRITERIA.register("target_class_probability")
def target_class_probability(target: int, threshold: float = 0.5) -> Criterion:
    """The target class, given by name or index, has a higher probability than this (foolbox: TargetClassProbability)."""
    name = f"target_class_probability({target}, {_checked(threshold):g})"

    def explain(answer: Answer, name: Namer) -> list[str]:
        scores = answer.probabilities[:, target].tolist()
        return [f"score of {name(target)} {format_compared(score, threshold)} is above {threshold:g}" for score in scores]

    return Criterion(name, lambda answer: answer.probabilities[:, target] > threshold, explain=explain)


def _other_class(answer: Answer) -> Tensor:
    """Return the cause where another class is predicted; a detector may find nothing."""
    prediction = answer.verdict.prediction
    return prediction.new_full(prediction.shape, CLASS_CHANGED).masked_fill(prediction < 0, LOST)


def _explain(text: str, threshold: float) -> Explanation:
    """Return an explanation in which the threshold and the verdict's fields are filled in; ranks count from 1."""

    def explain(answer: Answer, name: Namer) -> list[str]:
        verdict = answer.verdict
        fields = (verdict.prediction, verdict.confidence, verdict.rank + 1, verdict.probability)
        return [
            text.format(
                prediction=name(prediction),
                confidence=format_compared(confidence, threshold),
                rank=rank,
                probability=format_compared(probability, threshold),
                threshold=threshold,
            )
            for prediction, confidence, rank, probability in zip(*(each.tolist() for each in fields), strict=True)
        ]

    return explain


def _checked(threshold: float) -> float:
    if not 0 <= threshold <= 1:
        raise ConfigError(f"a criterion's threshold should be a probability from 0 to 1, got {threshold:g}")
    return threshold
