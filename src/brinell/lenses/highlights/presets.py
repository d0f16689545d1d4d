"""Presets of the highlights lens."""

from __future__ import annotations

from brinell.config.lens import STANDARD, Preset

PRESETS = {
    "quick": Preset(
        "A grid of 3 × 3 spots without the search: 36 forward passes per image.", {"operators": ("highlight",), "cells": 3}
    ),
    "standard": STANDARD,
    "full": Preset("A grid of 10 × 10 spots and a longer search.", {"cells": 10, "search_queries": 500}),
    "highlights2023": Preset(
        "A grid of 5 × 5 spots at the authors' positions, in four sizes (Vats and Jerripothula 2023).",
        {
            "operators": ("highlight",),
            "variant": "authors",
            "cells": 5,
            "sigmas": (10.0, 20.0, 30.0, 40.0),
            "relative": False,
            "strength": 1.0,
            "colour": (255.0, 255.0, 255.0),
            "criterion": "misclassification",
        },
    ),
}
