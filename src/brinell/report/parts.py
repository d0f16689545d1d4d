"""What each kind of finding has in the report: its section, its figures, and the figures that can be asked for by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from brinell.report.figures import Figure, area_bars, average_profiles, operator_profiles
from brinell.report.fragility import fragility_figures, fragility_pictures, fragility_section
from brinell.report.fragility_figures import fragile_curves, location_curves, recognised_curves
from brinell.report.highlight import (
    attention_figures,
    attention_section,
    highlight_figures,
    highlight_section,
    photograph_section,
)
from brinell.report.highlight_figures import accuracy_bars, cell_map, drift_bars, place_bars, scene_bars, size_bars
from brinell.report.knob import knob_figures, knob_section
from brinell.report.knob_figures import fooling_bars, robustness_bars, sides, threshold_curves
from brinell.report.motion_figures import generator_shares, invariance_bars, misclassification, random_bars
from brinell.report.motions import motion_figures, motion_section
from brinell.report.profile import profile_figures, profile_section
from brinell.report.section import Section, Told
from brinell.results import Attention, Findings, Fragility, Highlights, Knobs, Motions, Photographs, Profiles

Maker = Callable[..., Figure]


@dataclass(frozen=True)
class Part:
    """`figures` are all that a run can write; `named` those that can be asked for, and what each can be chosen by.

    `pictures` are figures that are no charts, as PNG.
    """

    section: Callable[[Told, Any], Section]
    figures: Callable[[Any], dict[str, Figure]]
    named: dict[str, tuple[Maker, tuple[str, ...]]]
    pictures: Callable[[Told, Any], dict[str, bytes]] = lambda told, found: {}


PARTS: dict[type[Findings], Part] = {
    Profiles: Part(
        profile_section,
        profile_figures,
        {
            "average": (average_profiles, ("metric",)),
            "operators": (operator_profiles, ("model", "metric")),
            "areas": (area_bars, ()),
        },
    ),
    Knobs: Part(
        knob_section,
        knob_figures,
        {
            "robustness": (robustness_bars, ()),
            "fooling": (fooling_bars, ()),
            "thresholds": (threshold_curves, ("operator",)),
            "sides": (sides, ("operator",)),
        },
    ),
    Fragility: Part(
        fragility_section,
        fragility_figures,
        {
            "fragile": (fragile_curves, ("kind",)),
            "recognised": (recognised_curves, ()),
            "location": (location_curves, ()),
        },
        fragility_pictures,
    ),
    Highlights: Part(
        highlight_section,
        highlight_figures,
        {
            "highlight-accuracy": (accuracy_bars, ("operator",)),
            "highlight-sizes": (size_bars, ("operator",)),
            "highlight-cells": (cell_map, ("operator",)),
            "highlight-place": (place_bars, ("operator",)),
        },
    ),
    Photographs: Part(
        photograph_section, lambda found: {"photographs": scene_bars(found)}, {"photographs": (scene_bars, ())}
    ),
    Motions: Part(
        motion_section,
        motion_figures,
        {
            "invariance": (invariance_bars, ()),
            "misclassification": (misclassification, ()),
            "random": (random_bars, ()),
            "generators": (generator_shares, ()),
        },
    ),
    Attention: Part(attention_section, attention_figures, {"attention-moved": (drift_bars, ())}),
}
