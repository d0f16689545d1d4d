"""Presets of the profile lens."""

from __future__ import annotations

from brinell.config.lens import STANDARD, Preset

PRESETS = {
    "quick": Preset(
        "Five operators, one of each kind: 150 forward passes per image.",
        {"operators": ("jpeg", "global_blur", "noise", "white_fog", "fade_black")},
    ),
    "standard": STANDARD,
    "full": Preset("All operators at all levels, the same as the defaults.", {"operators": ("all",), "levels": 30}),
    "swingler2022": Preset(
        "All operators as in the published code (Swingler, IJCCI 2022).",
        {"operators": ("all",), "variant": "published", "levels": 30, "criterion": "misclassification"},
    ),
    "imagenet_c": Preset(
        "The 15 corruptions of ImageNet-C at their five severities (Hendrycks and Dietterich, ICLR 2019).",
        {"operators": ("imagenet_c",), "levels": 5, "criterion": "misclassification"},
    ),
}
