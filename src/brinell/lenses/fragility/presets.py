"""Presets of the fragility lens."""

from __future__ import annotations

from brinell.config.lens import STANDARD, Preset

PRESETS = {
    "quick": Preset(
        "A few windows of one size: about 150 to 200 forward passes per image.", {"sizes": (0.4,), "stride": 0.25}
    ),
    "standard": STANDARD,
    "full": Preset("Every window of four sizes, every location, and minimal images.", {"operators": ("all",), "stride": 1}),
    "fragile2019": Preset(
        "Every window of four sizes, judged by top-5 accuracy (ICLR 2019).",
        {
            "operators": ("windows",),
            "sizes": (0.2, 0.4, 0.6, 0.8),
            "stride": 1,
            "fit": "bilinear",
            "neighbours": 8,
            "criterion": "top_k_misclassification(5)",
        },
    ),
}
