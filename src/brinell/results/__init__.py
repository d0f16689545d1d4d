"""What was found: rows, where they lie, and the figures computed from them."""

from brinell.results.attention import Attention, Moved, attention
from brinell.results.contrasts import Contrast, Contrasts, FailurePoint, contrasts, operator_title, tell
from brinell.results.detections import Precision, precision, precisions, require_evaluation
from brinell.results.findings import Findings, findings
from brinell.results.fragility import FallingPair, Fragility, MinimalImages, Share, by_size, fragility, map_file, read_maps
from brinell.results.gates import Check, Gate, Judgement, judge, load_gate
from brinell.results.highlights import AT_LEAST, ByPlace, Glare, Highlights, LeastLight, Spotted, highlights, spotted
from brinell.results.human import Comparison, Human, compared, overlap, read_human
from brinell.results.knobs import Hardness, Knobs, Least, Side, knobs, least
from brinell.results.measures import AVERAGE, MEASURES, Measure
from brinell.results.motions import Invariance, Motions, Rate, Smallest, motions, smallest_motions
from brinell.results.names import title
from brinell.results.photographs import Photographs, Scenes, photographs
from brinell.results.profiles import METRICS, THRESHOLDS, Breaker, Failure, Point, Profiles, breakers, profiles, told
from brinell.results.ranking import Leaderboard, Standing, figure, leaderboard, operators_told
from brinell.results.schema import ATTENTION, CLEAN, PRECISION, ROWS, SAMPLES, Unit
from brinell.results.statistics import Estimate, mean, proportion, ratio
from brinell.results.store import Store

__all__ = [
    "ATTENTION",
    "AT_LEAST",
    "AVERAGE",
    "CLEAN",
    "MEASURES",
    "METRICS",
    "PRECISION",
    "ROWS",
    "SAMPLES",
    "THRESHOLDS",
    "Attention",
    "Breaker",
    "ByPlace",
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
    "Glare",
    "Hardness",
    "Highlights",
    "Human",
    "Invariance",
    "Judgement",
    "Knobs",
    "Leaderboard",
    "Least",
    "LeastLight",
    "Measure",
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
    "Standing",
    "Store",
    "Unit",
    "attention",
    "breakers",
    "by_size",
    "compared",
    "contrasts",
    "figure",
    "findings",
    "fragility",
    "highlights",
    "judge",
    "knobs",
    "leaderboard",
    "least",
    "load_gate",
    "map_file",
    "mean",
    "motions",
    "operator_title",
    "operators_told",
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
    "tell",
    "title",
    "told",
]
