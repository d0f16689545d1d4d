"""What the findings of the geometry lens look like as JSON."""

from __future__ import annotations

from brinell.lenses.geometry.statistics import CoordinateShare, Rate

_KEY = {"model": str, "operator": str}

SHAPE = {
    "threshold": float,
    "against": str,
    "score_limit": float,
    "verdicts": {str: str},
    "smallest": [
        {
            **_KEY,
            **dict.fromkeys(("fooled", "failed", "skipped", "no_answer", "by_retry", "at_edge"), int),
            **dict.fromkeys(("restricted_mean", "low", "high", "rho_hat", "rho_hat_low", "rho_hat_high"), float),
            **dict.fromkeys(("first_try", "median", "seconds", "queries", "gradients", "steps"), float),
            "reasons": {str: int},
        }
    ],
    "rates": [Rate],
    "threshold_scores": [{**_KEY, "score": float, "low": float, "high": float}],
    "shares": [CoordinateShare],
    "label_changes": [{str: object}],
}
