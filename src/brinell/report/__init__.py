"""Telling what was found: figures, and one HTML page."""

from brinell.report.figures import Figure, area_bars, average_profiles, operator_profiles
from brinell.report.page import render, write_figures, write_report

__all__ = [
    "Figure",
    "area_bars",
    "average_profiles",
    "operator_profiles",
    "render",
    "write_figures",
    "write_report",
]
