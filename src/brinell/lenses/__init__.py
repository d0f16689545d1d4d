"""Which trials to ask. Importing this package registers every lens."""

from brinell.lenses.knob import KnobOptions
from brinell.lenses.lens import LENSES, Change, Files, Known, Lens, LensOptions, Outcome, Shard, Trials, Words
from brinell.lenses.profile import ProfileOptions
from brinell.lenses.search import DISTANCES, STATUSES
from brinell.lenses.stage import Stage, Task

__all__ = [
    "DISTANCES",
    "LENSES",
    "STATUSES",
    "Change",
    "Files",
    "KnobOptions",
    "Known",
    "Lens",
    "LensOptions",
    "Outcome",
    "ProfileOptions",
    "Shard",
    "Stage",
    "Task",
    "Trials",
    "Words",
]
