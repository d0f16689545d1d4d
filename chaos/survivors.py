"""Why mutants survive: by module and mutant, as chaos/mutants.json names them."""

from __future__ import annotations

REASONS: dict[tuple[str, str], str] = {
    ("brinell.criteria.classification", "line 96: True → False"): "equivalent: the columns have one length",
    ("brinell.criteria.distance", "line 26: 1 → 2"): "equivalent: whatever is below the overlap of a match",
}
