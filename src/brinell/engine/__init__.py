"""Putting it together."""

from brinell.engine.exhibits import Exhibit, read_exhibits
from brinell.engine.progress import Reporter, Silent, reporter
from brinell.engine.runner import Parts, assemble, execute
from brinell.engine.windows import PairPicture, Photo, WindowExhibits, read_window_exhibits

__all__ = [
    "Exhibit",
    "PairPicture",
    "Parts",
    "Photo",
    "Reporter",
    "Silent",
    "WindowExhibits",
    "assemble",
    "execute",
    "read_exhibits",
    "read_window_exhibits",
    "reporter",
]
