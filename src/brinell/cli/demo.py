"""The demo: every lens that needs no data of its own on a few photographs, in one run and one report."""

from __future__ import annotations

from typing import Any

from brinell.cli.console import say
from brinell.cli.execute import execute
from brinell.run_config import load_config

#: sized for one to four minutes on two cores; the first lens is done within the first one
CONFIG: dict[str, Any] = {
    "models": ["efficientnet_lite0", "efficientnet_lite1"],
    "data": {"source": "demo-photos", "limit": 16, "shuffle": True},
    "saliency": {"pairs": 1},
    "lenses": [
        {
            "name": "profile",
            "operators": [
                "global_blur",
                "local_blur",
                "noise",
                "white_fog",
                "boxes",
                "black_lines",
                "posterise",
                "fade_black",
            ],
            "levels": 10,
        },
        {"name": "knob", "operators": ["fog", "rotation", "brightness", "motion_blur", "gaussian_noise"], "points": 40},
        {"name": "highlights", "cells": 4, "sigmas": [20, 40], "search_queries": 40},
        {"name": "fragility", "sizes": [0.4], "stride": 96},
        {
            "name": "geometry",
            "operators": ["rotation_translation"],
            "methods": ["random"],
            "radii": [0.5, 1, 2],
            "draws": 5,
        },
    ],
}


def run_demo(folder: str) -> None:
    """Run the demo into a folder."""
    say("Five lenses, two networks, 16 photographs: one to four minutes on two cores. Rerun to resume.")
    execute(load_config({**CONFIG, "out": folder}))
    say(f"Break the photographs yourself: brinell view {folder}")
