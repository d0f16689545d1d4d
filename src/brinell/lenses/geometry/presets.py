"""Presets of the geometry lens."""

from __future__ import annotations

from brinell.config.lens import STANDARD, Preset

PRESETS = {
    "quick": Preset(
        "Random similarities of three scores and a coarse grid, without gradients: 95 forward passes per image.",
        {
            "operators": ("similarity",),
            "methods": ("random", "grid"),
            "radii": (1.0, 2.0, 4.0),
            "draws": 5,
            "grid_motions": 81,
        },
    ),
    "standard": STANDARD,
    "full": Preset("All groups of motions.", {"operators": ("all",)}),
    "manifool2018": Preset(
        "Similarity and affine motions by ManiFool without a second try, and random motions (CVPR 2018).",
        {
            "operators": ("similarity", "affine"),
            "methods": ("manifool", "random"),
            "against": "answer",
            "max_steps": 50,
            "targets": 10,
            "retry": 0.0,
            "min_change": 0.0,
            "eta": 0.05,
            "backtrack": True,
            "drop": False,
            "radii": tuple(0.5 * step for step in range(1, 11)),
            "draws": 10,
            "directions": "raw",
            "threshold": 0.5,
        },
    ),
}
