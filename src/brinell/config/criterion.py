"""The criterion that a lens uses unless another is given. Importable without torch, for reports."""

from __future__ import annotations

DEFAULT_CRITERION = "default"


def default_criterion(detector: bool) -> str:
    """Return the name of the default criterion of a classifier or a detector."""
    return "target_class_missing" if detector else "misclassification"
