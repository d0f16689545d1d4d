"""Telling what was found: figures, and one HTML page."""

from brinell.report.comparison import comparison_markdown, comparison_page, junit, value, write_comparison, write_text
from brinell.report.comparison_figures import difference_bars, level_differences
from brinell.report.figures import Figure
from brinell.report.page import render, write_figures, write_report
from brinell.report.parts import PARTS

__all__ = [
    "PARTS",
    "Figure",
    "comparison_markdown",
    "comparison_page",
    "difference_bars",
    "junit",
    "level_differences",
    "render",
    "value",
    "write_comparison",
    "write_figures",
    "write_report",
    "write_text",
]
