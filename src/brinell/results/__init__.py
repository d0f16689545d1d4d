"""What was found: rows, where they lie, and the figures computed from them."""

from brinell.results.findings import Findings, findings
from brinell.results.knobs import Hardness, Knobs, Least, Side, knobs, least
from brinell.results.names import title
from brinell.results.profiles import METRICS, THRESHOLDS, Breaker, Failure, Point, Profiles, breakers, profiles, told
from brinell.results.schema import CLEAN, ROWS, SAMPLES, Unit
from brinell.results.statistics import Estimate, mean, proportion
from brinell.results.store import Store

__all__ = [
    "CLEAN",
    "METRICS",
    "ROWS",
    "SAMPLES",
    "THRESHOLDS",
    "Breaker",
    "Estimate",
    "Failure",
    "Findings",
    "Hardness",
    "Knobs",
    "Least",
    "Point",
    "Profiles",
    "Side",
    "Store",
    "Unit",
    "breakers",
    "findings",
    "knobs",
    "least",
    "mean",
    "profiles",
    "proportion",
    "title",
    "told",
]
