"""What the findings of the profile lens look like as JSON."""

from __future__ import annotations

from brinell.lenses.profile.calibration import Calibration
from brinell.lenses.profile.curves import FailurePoint
from brinell.lenses.profile.groups import Affected
from brinell.lenses.profile.overlap import ClassOverlap
from brinell.lenses.profile.robustness import Robustness
from brinell.runs.statistics import Estimate

_ESTIMATE = {"value": float, "low": float, "high": float}
_KEY = {"model": str, "operator": str}

SHAPE = {
    "verdicts": {str: str},
    "models": {str: Estimate},  # mean accuracy over all averaged operators and levels
    "areas": [{**_KEY, **_ESTIMATE}],
    "smoothed": bool,  # whether curves were fitted to a sample of the rows
    "failure_points": [FailurePoint],
    "robustness": {str: Robustness},  # over all operators, by model
    "affected": {str: Affected},  # classes and images that suffer most, by model
    "calibration": [Calibration],
    "class_iou": {str: [ClassOverlap]},  # of a segmenter's classes, by model
    "profiles": [{**_KEY, "level": int, "metric": str, **_ESTIMATE, "caption": str}],
}
