"""Categorical to calls."""

from brinell.cli.main import main

__all__ = ["main"]
