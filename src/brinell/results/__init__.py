"""What was found: rows, where they lie, and the figures computed from them."""

from brinell.results.attention import Attention, Moved, attention
from brinell.results.detections import Precision, precision, precisions, require_evaluation
from brinell.results.findings import Findings, findings
from brinell.results.highlights import AT_LEAST, ByPlace, Glare, Highlights, LeastLight, Spotted, highlights, spotted
from brinell.results.knobs import Hardness, Knobs, Least, Side, knobs, least
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
    "Estimate",
    "Failure",
    "Findings",
    "Glare",
    "Hardness",
    "Highlights",
    "Knobs",
    "Least",
    "LeastLight",
    "Moved",
    "Photographs",
    "Point",
    "Precision",
    "Profiles",
    "Scenes",
    "Side",
    "Spotted",
    "Store",
    "Unit",
    "attention",
    "breakers",
    "findings",
    "highlights",
    "knobs",
    "least",
    "mean",
    "photographs",
    "precision",
    "precisions",
    "profiles",
    "proportion",
    "ratio",
    "require_evaluation",
    "spotted",
    "title",
    "told",
]
