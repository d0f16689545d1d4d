"""Putting it together."""

from brinell.engine.exhibits import Exhibit, read_exhibits
from brinell.engine.moved import Written, write_moved
from brinell.engine.progress import Reporter, Silent, reporter
from brinell.engine.runner import Parts, assemble, execute

__all__ = [
    "Exhibit",
    "Parts",
    "Reporter",
    "Silent",
    "Written",
    "assemble",
    "execute",
    "read_exhibits",
    "reporter",
    "write_moved",
]
