"""What the findings of the knob lens look like as JSON."""

from __future__ import annotations

from typing import Any

_KEY = {"model": str, "operator": str}


def _estimate(name: str) -> dict[str, Any]:
    return {f"{name}_{part}": float for part in ("value", "low", "high")}


SHAPE = {
    "distance": str,
    "search": str,
    "resample": bool,
    "rounding": str,
    "verdicts": {str: str},
    "hardness": [
        {
            **_KEY,
            **dict.fromkeys(("broken", "survived", "skipped", "failed"), int),
            **_estimate("robustness"),
            **_estimate("survived"),
            **_estimate("fooled"),
            "threshold": float,
            "median": {str: float},  # by direction
            "queries": float,
            "non_monotone": float,
        }
    ],
    "ranges": [{**_KEY, "direction": str, "images": int, "mean": float, "weakest": float, "strongest": float}],
    "curves": [{**_KEY, "distance": float, "share": float}],
}
