"""What each kind of finding has in the report: its section, its figures, and the figures that can be asked for by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from brinell.lenses.analysis import Findings
from brinell.lenses.fragility.charts import fragile_curves, location_curves, recognised_curves
from brinell.lenses.fragility.findings import Fragility
from brinell.lenses.fragility.show import fragility_figures, fragility_pictures, fragility_section
from brinell.lenses.geometry.charts import generator_shares, invariance_bars, misclassification, random_bars
from brinell.lenses.geometry.findings import Motions
from brinell.lenses.geometry.show import motion_figures, motion_section
from brinell.lenses.highlights.charts import accuracy_bars, cell_map, drift_bars, place_bars, scene_bars, size_bars
from brinell.lenses.highlights.findings import Highlights
from brinell.lenses.highlights.show import (
    attention_figures,
    attention_section,
    highlight_figures,
    highlight_section,
    photograph_section,
)
from brinell.lenses.knob.charts import fooling_bars, robustness_bars, sides, threshold_curves
from brinell.lenses.knob.findings import Knobs
from brinell.lenses.knob.show import knob_figures, knob_section
from brinell.lenses.photographs.findings import Photographs
from brinell.lenses.profile.charts import Figure, area_bars, average_profiles, operator_profiles
from brinell.lenses.profile.findings import Profiles
from brinell.lenses.profile.show import profile_figures, profile_section
from brinell.report.section import Section, Told
from brinell.saliency.findings import Attention

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
