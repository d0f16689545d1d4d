"""Which trials to ask. Importing this package registers every lens."""

from brinell.lenses.geometry import GeometryOptions
from brinell.lenses.knob import KnobOptions
from brinell.lenses.lens import LENSES, Change, Files, Known, Lens, LensOptions, Outcome, Shard, Trials, Words
from brinell.lenses.profile import ProfileOptions
from brinell.lenses.search import DISTANCES, STATUSES
from brinell.lenses.stage import MotionSearch, Stage, Task

__all__ = [
    "DISTANCES",
    "LENSES",
    "STATUSES",
    "Change",
    "Files",
    "GeometryOptions",
    "KnobOptions",
    "Known",
    "Lens",
    "LensOptions",
    "MotionSearch",
    "Outcome",
    "ProfileOptions",
    "Shard",
    "Stage",
    "Task",
    "Trials",
    "Words",
]
