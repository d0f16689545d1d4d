"""Telling what was found: figures, and one HTML page."""

from brinell.report.figures import Figure, area_bars, average_profiles, operator_profiles
from brinell.report.knob_figures import fooling_bars, robustness_bars, sides, threshold_curves
from brinell.report.motion_figures import generator_shares, invariance_bars, misclassification, random_bars
from brinell.report.page import render, write_figures, write_report

__all__ = [
    "Figure",
    "area_bars",
    "average_profiles",
    "fooling_bars",
    "generator_shares",
    "invariance_bars",
    "misclassification",
    "operator_profiles",
    "random_bars",
    "render",
    "robustness_bars",
    "sides",
    "threshold_curves",
    "write_figures",
    "write_report",
]
