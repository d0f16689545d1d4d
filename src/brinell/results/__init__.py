"""What was found: rows, where they lie, and the figures computed from them."""

from brinell.results.detections import Precision, precision, precisions, require_evaluation
from brinell.results.findings import Findings, findings
from brinell.results.knobs import Hardness, Knobs, Least, Side, knobs, least
from brinell.results.motions import Invariance, Motions, Rate, Smallest, motions, smallest_motions
from brinell.results.names import title
from brinell.results.profiles import METRICS, THRESHOLDS, Breaker, Failure, Point, Profiles, breakers, profiles, told
from brinell.results.schema import CLEAN, PRECISION, ROWS, SAMPLES, Unit
from brinell.results.statistics import Estimate, mean, proportion
from brinell.results.store import Store

__all__ = [
    "CLEAN",
    "METRICS",
    "PRECISION",
    "ROWS",
    "SAMPLES",
    "THRESHOLDS",
    "Breaker",
    "Estimate",
    "Failure",
    "Findings",
    "Hardness",
    "Invariance",
    "Knobs",
    "Least",
    "Motions",
    "Point",
    "Precision",
    "Profiles",
    "Rate",
    "Side",
    "Smallest",
    "Store",
    "Unit",
    "breakers",
    "findings",
    "knobs",
    "least",
    "mean",
    "motions",
    "precision",
    "precisions",
    "profiles",
    "proportion",
    "require_evaluation",
    "smallest_motions",
    "title",
    "told",
]
