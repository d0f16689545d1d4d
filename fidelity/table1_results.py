"""Statistics of the scores behind Table 1 of the ManiFool paper (CVPR 2018)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Columns = dict[str, np.ndarray]


def compare_methods(networks: Sequence[dict[str, Columns]], groups: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return by group the ratio of Manitest's mean to ManiFool's on the images that both searched, with its error."""
    compared = {}
    for group in groups:
        both = [own for own in networks if {f"{group}:manifool", f"{group}:manitest"} <= own.keys()]
        pairs = [(own[f"{group}:manitest"]["score"], own[f"{group}:manifool"]["score"]) for own in both]
        if pairs:
            manitest, manifool = (np.concatenate(side) for side in zip(*(_common(*pair) for pair in pairs), strict=True))
            gap, base = manitest - manifool, float(np.nanmean(manifool))
            compared[group] = {
                "ratio": 1 + float(np.nanmean(gap)) / base,
                "error": float(np.nanstd(gap, ddof=1) / len(gap) ** 0.5) / base,
                "images": len(gap),
                "below": float(np.mean(gap < 0)),
            }
    return compared


def _common(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    count = min(len(first), len(second))
    return first[:count], second[:count]


def summarise(own: Columns) -> dict[str, float]:
    """Return the mean score with its standard error, and the mean costs."""
    value = own["score"]
    known = value[~np.isnan(value)]
    return {
        "images": len(value),
        "failed": int(np.isnan(value).sum()),
        "score": float(known.mean()),
        "error": float(known.std(ddof=1) / len(known) ** 0.5),
        **{name: float(own[name].mean()) for name in ("seconds", "queries", "gradients")},
    }


def measure_change(found: np.ndarray, base: np.ndarray, *, paired: bool) -> dict[str, float]:
    """Return the relative change of the mean with its standard error, and the share of images whose score changes."""
    count = min(len(found), len(base))
    found, base = found[:count], base[:count]
    other = float(np.mean(~np.isclose(found, base, rtol=1e-6, equal_nan=True))) if paired else 1.0
    mean = np.nanmean(base)
    both = np.nanvar(found - base, ddof=1) if paired else np.nanvar(found, ddof=1) + np.nanvar(base, ddof=1)
    return {
        "change": float(np.nanmean(found) / mean - 1),
        "error": float((both / count) ** 0.5 / mean),
        "images": count,
        "failed": int(np.isnan(found).sum()),
        "other": other,
    }
