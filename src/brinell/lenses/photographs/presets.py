"""Presets of the photographs lens, which queries every photograph once: there is nothing to leave out or to add."""

from __future__ import annotations

from brinell.config.lens import STANDARD, Preset

PRESETS = {
    "quick": Preset("The defaults: every photograph is queried once."),
    "standard": STANDARD,
    "full": Preset("The defaults: every photograph is queried once."),
    "highlights2023": Preset(
        "Photographs lit by a torch, as given (Vats and Jerripothula 2023).", {"criterion": "misclassification"}
    ),
}
