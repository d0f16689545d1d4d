"""What counts as broken. Importing this package registers every criterion."""

from brinell.criteria import classification  # noqa: F401
from brinell.criteria.criterion import (
    CRITERIA,
    USUAL,
    Answer,
    Criterion,
    Scene,
    Verdict,
    find_criterion,
    usual,
    verdict,
    verdict_of_detector,
)
from brinell.criteria.detection import own_regions

__all__ = [
    "CRITERIA",
    "USUAL",
    "Answer",
    "Criterion",
    "Scene",
    "Verdict",
    "find_criterion",
    "own_regions",
    "usual",
    "verdict",
    "verdict_of_detector",
]
