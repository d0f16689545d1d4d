"""Criteria for classifiers. They apply to detectors, too."""

from __future__ import annotations

from brinell.criteria.criterion import CRITERIA, Criterion
from brinell.errors import ConfigError


@CRITERIA.register("misclassification")
def misclassification() -> Criterion:
    """The prediction is not the label."""
    return Criterion("misclassification", lambda answer: answer.verdict.rank > 0, scores=False)


@CRITERIA.register("top_k_misclassification")
def top_k_misclassification(k: float = 5) -> Criterion:
    """The label is not among the k best classes."""
    if k < 1 or k != int(k):
        raise ConfigError(f"top_k_misclassification expects a whole number of classes (1 or more), got {k:g}")
    return Criterion(f"top_k_misclassification({k:g})", lambda answer: answer.verdict.rank >= k)


@CRITERIA.register("confident_misclassification")
def confident_misclassification(threshold: float = 0.9) -> Criterion:
    """The prediction is not the label, and its confidence is at least the threshold."""
    name = f"confident_misclassification({_checked(threshold):g})"
    return Criterion(name, lambda answer: (answer.verdict.rank > 0) & (answer.verdict.confidence >= threshold))


@CRITERIA.register("original_class_confidence_loss")
def original_class_confidence_loss(threshold: float = 0.5) -> Criterion:
    """The label's probability is below the threshold (foolbox: OriginalClassProbability)."""
    name = f"original_class_confidence_loss({_checked(threshold):g})"
    return Criterion(name, lambda answer: answer.verdict.probability < threshold)


@CRITERIA.register("target_class")
def target_class(target: int) -> Criterion:
    """The prediction is the target class, given by name or index (foolbox: TargetClass)."""
    return Criterion(f"target_class({target})", lambda answer: answer.verdict.prediction == target, scores=False)


@CRITERIA.register("target_class_probability")
def target_class_probability(target: int, threshold: float = 0.5) -> Criterion:
    """The target class, given by name or index, has a higher probability than this (foolbox: TargetClassProbability)."""
    name = f"target_class_probability({target}, {_checked(threshold):g})"
    return Criterion(name, lambda answer: answer.probabilities[:, target] > threshold)


def _checked(threshold: float) -> float:
    if not 0 <= threshold <= 1:
        raise ConfigError(f"a criterion's threshold should be a probability from 0 to 1, got {threshold:g}")
    return threshold
