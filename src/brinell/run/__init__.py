"""Putting it together."""

from brinell.run.exhibits import Exhibit, read_exhibits
from brinell.run.progress import Reporter, Silent, reporter
from brinell.run.runner import Parts, assemble, execute

__all__ = ["Exhibit", "Parts", "Reporter", "Silent", "assemble", "execute", "read_exhibits", "reporter"]
