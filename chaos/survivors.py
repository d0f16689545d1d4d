"""Why mutants survive: by module and mutant, as chaos/mutants.json names them."""

from __future__ import annotations

_ONE_LENGTH = "equivalent: the columns have one length"
_STABLE = "equivalent on a CPU, where torch always sorts stably"

REASONS: dict[tuple[str, str], str] = {
    ("brinell.comparison.paired", "line 182: GtE → Gt"): "equivalent: the limit is a little below what is compared with it",
    (
        "brinell.comparison.paired",
        "line 182: Sub → Add",
    ): "rounding only: whether a resample that ties with the sample to nine digits counts",
    (
        "brinell.comparison.resampling",
        "line 12: 4000000 → 4000001",
    ): "equivalent: a limit of memory; sums don't depend on it",
    ("brinell.comparison.resampling", "line 18: 1 → 2"): "equivalent: NumPy takes any negative side for the missing one",
    ("brinell.criteria.classification", "line 102: True → False"): _ONE_LENGTH,
    ("brinell.criteria.criterion", "line 121: 6 → 7 (2)"): "equivalent: six digits are shown in either case",
    ("brinell.criteria.criterion", "line 131: True → False"): _ONE_LENGTH,
    ("brinell.criteria.detection", "line 137: True → False"): _ONE_LENGTH,
    ("brinell.criteria.detection", "line 156: 1 → 2"): "equivalent: any negative number is no class",
    ("brinell.criteria.detection", "line 86: True → False"): _ONE_LENGTH,
    ("brinell.criteria.distance", "line 26: 1 → 2"): "equivalent: whatever is below the overlap of a match",
    ("brinell.lenses.fragility.minimal", "line 104: 0 → 1 (2)"): "equivalent: a square has one largest window, itself",
    ("brinell.lenses.fragility.minimal", "line 116: Lt → LtE"): "equivalent: if all windows are kept, none is dropped",
    ("brinell.lenses.geometry.manifool", "line 202: True → False"): _ONE_LENGTH,
    (
        "brinell.lenses.geometry.manifool",
        "line 289: without USub",
    ): "equivalent: an image whose scores hold NaN has no answer, and its targets are not used",
    (
        "brinell.lenses.geometry.manifool",
        "line 40: 12 → 13",
    ): "speed only: a closer lower bound drops a longer path a little earlier",
    ("brinell.lenses.geometry.manitest", "line 106: True → False"): _STABLE,
    ("brinell.lenses.geometry.manitest", "line 119: True → False"): _STABLE,
    ("brinell.lenses.geometry.manitest", "line 39: 50000 → 50001"): "a limit of time: one node more",
    ("brinell.lenses.geometry.manitest", "line 40: 4 → 5"): "equivalent: no group has five coordinates",
    ("brinell.lenses.geometry.manitest", "line 42: 1 → 2"): "memory only: images that march together",
    ("brinell.lenses.geometry.manitest", "line 43: 128 → 129"): "speed only: nodes that are updated at once",
    ("brinell.lenses.geometry.manitest", "line 93: True → False"): _ONE_LENGTH,
    (
        "brinell.lenses.knob.search",
        "line 127: Sub → Add",
    ): "equivalent: the first point is always queried, so the ends of a gap add up to more than 1",
    (
        "brinell.lenses.knob.search",
        "line 170: 1 → 2 (2)",
    ): "equivalent: the first point is always queried, so no gap begins before it",
    ("brinell.lenses.knob.search", "line 235: 1 → 2"): "equivalent: only rows of queried points are read",
    ("brinell.lenses.knob.search", "line 261: 1 → 2 (2)"): "equivalent: any negative number is before the first point",
    ("brinell.runs.quantiles", "line 102: Gt → GtE"): "equivalent: a number that is exactly 1e-300",
    ("brinell.runs.quantiles", "line 104: Lt → LtE"): "equivalent: numbers near 1 differ by multiples of 1.1e-16",
    ("brinell.runs.quantiles", "line 9: 1000 → 1001"): "equivalent to 1e-12: the series is that exact from here on",
    ("brinell.runs.ranking", "line 65: 0 → 1"): "equivalent: rows come by mean and name, so the extreme is the first",
    ("brinell.runs.ranking", "line 66: 1 → 2"): "equivalent: a difference over two images is never clear",
    ("brinell.runs.ranking", "line 66: Gt → GtE (2)"): "equivalent: no difference is never clear",
    (
        "brinell.runs.statistics",
        "line 110: 1.0 → 2.0",
    ): "equivalent: without spread, the bound on this side is 0 or 1 in any case",
    (
        "brinell.runs.statistics",
        "line 128: LtE → Lt",
    ): "equivalent: at 25 observations Wilson's interval already reaches farther",
}
