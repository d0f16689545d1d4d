"""Putting it together."""

from brinell.engine.attention import Glance, read_glances
from brinell.engine.exhibits import Exhibit, read_exhibits
from brinell.engine.progress import Reporter, Silent, reporter
from brinell.engine.runner import Parts, assemble, execute, look

__all__ = [
    "Exhibit",
    "Glance",
    "Parts",
    "Reporter",
    "Silent",
    "assemble",
    "execute",
    "look",
    "read_exhibits",
    "read_glances",
    "reporter",
]
