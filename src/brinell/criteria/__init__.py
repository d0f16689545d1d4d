"""What counts as broken. Importing this package registers every criterion."""

from brinell.criteria import classification  # noqa: F401
from brinell.criteria.criterion import (
    CRITERIA,
    DEFAULT_CRITERION,
    Answer,
    Criterion,
    Scene,
    Verdict,
    default_criterion,
    find_criterion,
    verdict,
    verdict_of_detector,
)
from brinell.criteria.detection import own_regions

__all__ = [
    "CRITERIA",
    "DEFAULT_CRITERION",
    "Answer",
    "Criterion",
    "Scene",
    "Verdict",
    "default_criterion",
    "find_criterion",
    "own_regions",
    "verdict",
    "verdict_of_detector",
]
