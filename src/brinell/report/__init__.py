"""Telling what was found: figures, and one HTML page."""

from brinell.report.figures import Figure, area_bars, average_profiles, operator_profiles
from brinell.report.fragility_figures import fragile_curves, location_curves, recognised_curves
from brinell.report.knob_figures import fooling_bars, robustness_bars, sides, threshold_curves
from brinell.report.page import render, write_figures, write_report

__all__ = [
    "Figure",
    "area_bars",
    "average_profiles",
    "fooling_bars",
    "fragile_curves",
    "location_curves",
    "operator_profiles",
    "recognised_curves",
    "render",
    "robustness_bars",
    "sides",
    "threshold_curves",
    "write_figures",
    "write_report",
]
