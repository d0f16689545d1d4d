"""What the findings of the fragility lens look like as JSON."""

from __future__ import annotations

from brinell.lenses.fragility.queries import MinimalImages, WindowPair

_KEY = {"model": str, "operator": str}
_SHARES = ("share", "lost", "gained", "inside", "outside", "recognised")

SHAPE = {
    "stride": float,
    "budget": float,
    "neighbours": int,
    "verdicts": {str: str},
    "shares": [
        {
            **_KEY,
            "kind": str,
            "judged_by": str,
            "images": int,
            "windows": int,
            **{f"{name}{part}": float for name in _SHARES for part in ("", "_low", "_high")},
        }
    ],
    "classes": [{**_KEY, "kind": str, "label": int, "images": int, "share": float}],
    "pairs": [WindowPair],
    "minimal": [MinimalImages],
    "smallest": [{"model": str, "image": str, "side": int}],
    "too_small": {str: int},
}
