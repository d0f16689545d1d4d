"""A criterion: wrong and confident about it."""

from __future__ import annotations

from brinell.criteria.criterion import CRITERIA, Criterion


@CRITERIA.register("confidently_wrong")
def confidently_wrong(confidence: float = 0.5) -> Criterion:
    """The top class is wrong and its probability is at least the given confidence."""
    return Criterion(
        f"confidently_wrong({confidence:g})",
        lambda answer: (answer.verdict.rank > 0) & (answer.verdict.confidence >= confidence),
    )
