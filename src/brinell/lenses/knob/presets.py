"""Presets of the knob lens."""

from __future__ import annotations

from brinell.config.lens import STANDARD, Preset

PRESETS = {
    "quick": Preset(
        "Six properties by bracket search on a coarse grid: about 124 forward passes per image.",
        {
            "operators": ("brightness", "contrast", "rotation", "gaussian_blur", "gaussian_noise", "fog"),
            "search": "bracket",
            "points": 100,
        },
    ),
    "standard": STANDARD,
    "full": Preset("All properties: the whole grid and every breaking interval.", {"search": "bands"}),
    "dsn2020": Preset(
        "All properties as in the authors' code, in floats, with new noise and weather at every grid point (DSN 2020).",
        {
            "operators": ("all",),
            "variant": "dsn2020",
            "search": "exact",
            "points": None,
            "resample": True,
            "rounding": "none",
            "distance": "mse",
            "criterion": "misclassification",
        },
    ),
}
