"""Which trials to ask. Importing this package registers every lens."""

from brinell.lenses.fragile import KINDS, Answers, fragile
from brinell.lenses.fragility import LOOKS, FragilityOptions
from brinell.lenses.geometry import GeometryOptions
from brinell.lenses.highlights import HIGHLIGHT_READINGS, HighlightOptions
from brinell.lenses.knob import KnobOptions
from brinell.lenses.lens import LENSES, Again, Asked, Change, Files, Known, Lens, LensOptions, Outcome, Shard, Trials, Words
from brinell.lenses.maps import Maps, packed, unpacked
from brinell.lenses.photographs import PhotographOptions
from brinell.lenses.profile import ProfileOptions
from brinell.lenses.search import DISTANCES, STATUSES
from brinell.lenses.stage import Motion, MotionSearch, Stage, Task
from brinell.lenses.windows import Grid, Neighbourhood, window_side

__all__ = [
    "DISTANCES",
    "HIGHLIGHT_READINGS",
    "KINDS",
    "LENSES",
    "LOOKS",
    "STATUSES",
    "Again",
    "Answers",
    "Asked",
    "Change",
    "Files",
    "FragilityOptions",
    "GeometryOptions",
    "Grid",
    "HighlightOptions",
    "KnobOptions",
    "Known",
    "Lens",
    "LensOptions",
    "Maps",
    "Motion",
    "MotionSearch",
    "Neighbourhood",
    "Outcome",
    "PhotographOptions",
    "ProfileOptions",
    "Shard",
    "Stage",
    "Task",
    "Trials",
    "Words",
    "fragile",
    "packed",
    "unpacked",
    "window_side",
]
