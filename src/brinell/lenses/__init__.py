"""Which trials to ask. Importing this package registers every lens."""

from brinell.lenses.highlights import HIGHLIGHT_READINGS, HighlightOptions
from brinell.lenses.knob import KnobOptions
from brinell.lenses.lens import LENSES, Change, Files, Known, Lens, LensOptions, Outcome, Shard, Trials, Words
from brinell.lenses.photographs import PhotographOptions
from brinell.lenses.profile import ProfileOptions
from brinell.lenses.search import DISTANCES, STATUSES

__all__ = [
    "DISTANCES",
    "HIGHLIGHT_READINGS",
    "LENSES",
    "STATUSES",
    "Change",
    "Files",
    "HighlightOptions",
    "KnobOptions",
    "Known",
    "Lens",
    "LensOptions",
    "Outcome",
    "PhotographOptions",
    "ProfileOptions",
    "Shard",
    "Trials",
    "Words",
]
