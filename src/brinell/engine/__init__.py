"""Putting it together."""

from brinell.engine.attention import Glance, read_glances
from brinell.engine.exhibits import Exhibit, read_exhibits
from brinell.engine.moved import Written, write_moved
from brinell.engine.progress import Reporter, Silent, reporter
from brinell.engine.runner import Parts, assemble, execute, look
from brinell.engine.windows import PairPicture, Photo, WindowExhibits, read_window_exhibits

__all__ = [
    "Exhibit",
    "Glance",
    "PairPicture",
    "Parts",
    "Photo",
    "Reporter",
    "Silent",
    "WindowExhibits",
    "Written",
    "assemble",
    "execute",
    "look",
    "read_exhibits",
    "read_glances",
    "read_window_exhibits",
    "reporter",
    "write_moved",
]
