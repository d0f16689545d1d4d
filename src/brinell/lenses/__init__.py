"""Which trials to ask. Importing this package registers every lens."""

from brinell.lenses.fragile import KINDS, Answers, fragile
from brinell.lenses.fragility import LOOKS, FragilityOptions
from brinell.lenses.knob import KnobOptions
from brinell.lenses.lens import LENSES, Change, Files, Known, Lens, LensOptions, Outcome, Shard, Trials, Words
from brinell.lenses.maps import Maps, packed, unpacked
from brinell.lenses.profile import ProfileOptions
from brinell.lenses.search import DISTANCES, STATUSES
from brinell.lenses.windows import Grid, Neighbourhood, window_side

__all__ = [
    "DISTANCES",
    "KINDS",
    "LENSES",
    "LOOKS",
    "STATUSES",
    "Answers",
    "Change",
    "Files",
    "FragilityOptions",
    "Grid",
    "KnobOptions",
    "Known",
    "Lens",
    "LensOptions",
    "Maps",
    "Neighbourhood",
    "Outcome",
    "ProfileOptions",
    "Shard",
    "Trials",
    "Words",
    "fragile",
    "packed",
    "unpacked",
    "window_side",
]
