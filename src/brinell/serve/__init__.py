"""A model behind HTTP, so that what is deployed can be tested."""

from brinell.serve.server import Server, served_lines

__all__ = ["Server", "served_lines"]
