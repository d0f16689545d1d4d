"""What was found: rows, where they lie, and the figures computed from them."""

from brinell.results.detections import Precision, precision, precisions, require_evaluation
from brinell.results.findings import Findings, findings
from brinell.results.fragility import (
    FallingPair,
    Fragility,
    MinimalImages,
    Share,
    by_size,
    fragility,
    map_file,
    read_maps,
)
from brinell.results.human import Comparison, Human, compared, overlap, read_human
from brinell.results.knobs import Hardness, Knobs, Least, Side, knobs, least
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
    "Comparison",
    "Estimate",
    "Failure",
    "FallingPair",
    "Findings",
    "Fragility",
    "Hardness",
    "Human",
    "Knobs",
    "Least",
    "MinimalImages",
    "Point",
    "Precision",
    "Profiles",
    "Share",
    "Side",
    "Store",
    "Unit",
    "breakers",
    "by_size",
    "compared",
    "findings",
    "fragility",
    "knobs",
    "least",
    "map_file",
    "mean",
    "overlap",
    "precision",
    "precisions",
    "profiles",
    "proportion",
    "read_human",
    "read_maps",
    "require_evaluation",
    "title",
    "told",
]
