"""The default criterion of each kind of model."""

from __future__ import annotations

from typing import Literal

Task = Literal["classification", "detection", "segmentation", "embedding"]
DEFAULT_CRITERION = "default"  # each kind of model has its own default
_DEFAULTS: dict[Task, str] = {
    "classification": "misclassification",
    "detection": "target_class_missing",
    "segmentation": "miou_below(0.5)",
    "embedding": "embedding_moved(0.3)",
}


def default_criterion(task: Task) -> str:
    """Return the criterion that "default" stands for."""
    return _DEFAULTS[task]
