"""What was found: rows, where they lie, and the figures computed from them."""

from brinell.results.profiles import METRICS, THRESHOLDS, Breaker, Failure, Point, Profiles, breakers, profiles, title, told
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
    "Point",
    "Profiles",
    "Store",
    "Unit",
    "breakers",
    "mean",
    "profiles",
    "proportion",
    "title",
    "told",
]
