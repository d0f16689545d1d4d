"""The default criterion of classifiers and of detectors."""

from __future__ import annotations

DEFAULT_CRITERION = "default"  # each kind of model has its own default


def default_criterion(detector: bool) -> str:
    """Return the name of the criterion that "default" stands for."""
    return "target_class_missing" if detector else "misclassification"
