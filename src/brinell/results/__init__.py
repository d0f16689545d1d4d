"""What was found: rows, where they lie, and the figures computed from them."""

from brinell.results.attention import Attention, Moved, attention
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
from brinell.results.highlights import AT_LEAST, ByPlace, Glare, Highlights, LeastLight, Spotted, highlights, spotted
from brinell.results.human import Comparison, Human, compared, overlap, read_human
from brinell.results.knobs import Hardness, Knobs, Least, Side, knobs, least
from brinell.results.motions import Invariance, Motions, Rate, Smallest, motions, smallest_motions
from brinell.results.names import title
from brinell.results.photographs import Photographs, Scenes, photographs
from brinell.results.profiles import METRICS, THRESHOLDS, Breaker, Failure, Point, Profiles, breakers, profiles, told
from brinell.results.schema import ATTENTION, CLEAN, PRECISION, ROWS, SAMPLES, Unit
from brinell.results.statistics import Estimate, mean, proportion, ratio
from brinell.results.store import Store

__all__ = [
    "ATTENTION",
    "AT_LEAST",
    "CLEAN",
    "METRICS",
    "PRECISION",
    "ROWS",
    "SAMPLES",
    "THRESHOLDS",
    "Attention",
    "Breaker",
    "ByPlace",
    "Comparison",
    "Estimate",
    "Failure",
    "FallingPair",
    "Findings",
    "Fragility",
    "Glare",
    "Hardness",
    "Highlights",
    "Human",
    "Invariance",
    "Knobs",
    "Least",
    "LeastLight",
    "MinimalImages",
    "Motions",
    "Moved",
    "Photographs",
    "Point",
    "Precision",
    "Profiles",
    "Rate",
    "Scenes",
    "Share",
    "Side",
    "Smallest",
    "Spotted",
    "Store",
    "Unit",
    "attention",
    "breakers",
    "by_size",
    "compared",
    "findings",
    "fragility",
    "highlights",
    "knobs",
    "least",
    "map_file",
    "mean",
    "motions",
    "overlap",
    "photographs",
    "precision",
    "precisions",
    "profiles",
    "proportion",
    "ratio",
    "read_human",
    "read_maps",
    "require_evaluation",
    "smallest_motions",
    "spotted",
    "title",
    "told",
]
