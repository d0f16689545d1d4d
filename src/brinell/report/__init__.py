"""Telling what was found: figures, and one HTML page."""

from brinell.report.comparison import comparison_markdown, comparison_page, junit, value, write_comparison, write_text
from brinell.report.comparison_figures import difference_bars, level_differences
from brinell.report.figures import Figure, area_bars, average_profiles, operator_profiles
from brinell.report.fragility_figures import fragile_curves, location_curves, recognised_curves
from brinell.report.highlight_figures import accuracy_bars, cell_map, drift_bars, place_bars, scene_bars, size_bars
from brinell.report.knob_figures import fooling_bars, robustness_bars, sides, threshold_curves
from brinell.report.motion_figures import generator_shares, invariance_bars, misclassification, random_bars
from brinell.report.page import render, write_figures, write_report

__all__ = [
    "Figure",
    "accuracy_bars",
    "area_bars",
    "average_profiles",
    "cell_map",
    "comparison_markdown",
    "comparison_page",
    "difference_bars",
    "drift_bars",
    "fooling_bars",
    "fragile_curves",
    "generator_shares",
    "invariance_bars",
    "junit",
    "level_differences",
    "location_curves",
    "misclassification",
    "operator_profiles",
    "place_bars",
    "random_bars",
    "recognised_curves",
    "render",
    "robustness_bars",
    "scene_bars",
    "sides",
    "size_bars",
    "threshold_curves",
    "value",
    "write_comparison",
    "write_figures",
    "write_report",
    "write_text",
]
