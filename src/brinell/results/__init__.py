"""What was found: rows, where they lie, and the figures computed from them."""

from brinell.results.contrasts import Contrast, Contrasts, FailurePoint, contrasts, operator_title, tell
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
from brinell.results.gates import Check, Gate, Judgement, judge, load_gate
from brinell.results.human import Comparison, Human, compared, overlap, read_human
from brinell.results.knobs import Hardness, Knobs, Least, Side, knobs, least
from brinell.results.measures import AVERAGE, MEASURES, Measure
from brinell.results.names import title
from brinell.results.profiles import METRICS, THRESHOLDS, Breaker, Failure, Point, Profiles, breakers, profiles, told
from brinell.results.ranking import Leaderboard, Standing, figure, leaderboard, operators_told
from brinell.results.schema import CLEAN, PRECISION, ROWS, SAMPLES, Unit
from brinell.results.statistics import Estimate, mean, proportion
from brinell.results.store import Store

__all__ = [
    "AVERAGE",
    "CLEAN",
    "MEASURES",
    "METRICS",
    "PRECISION",
    "ROWS",
    "SAMPLES",
    "THRESHOLDS",
    "Breaker",
    "Check",
    "Comparison",
    "Contrast",
    "Contrasts",
    "Estimate",
    "Failure",
    "FailurePoint",
    "FallingPair",
    "Findings",
    "Fragility",
    "Gate",
    "Hardness",
    "Human",
    "Judgement",
    "Knobs",
    "Leaderboard",
    "Least",
    "Measure",
    "MinimalImages",
    "Point",
    "Precision",
    "Profiles",
    "Share",
    "Side",
    "Standing",
    "Store",
    "Unit",
    "breakers",
    "by_size",
    "compared",
    "contrasts",
    "figure",
    "findings",
    "fragility",
    "judge",
    "knobs",
    "leaderboard",
    "least",
    "load_gate",
    "map_file",
    "mean",
    "operator_title",
    "operators_told",
    "overlap",
    "precision",
    "precisions",
    "profiles",
    "proportion",
    "read_human",
    "read_maps",
    "require_evaluation",
    "tell",
    "title",
    "told",
]
