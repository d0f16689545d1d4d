"""Finished runs in a tracking server (MLflow)."""

from brinell.tracking.server import Server
from brinell.tracking.track import Tracked, track

__all__ = ["Server", "Tracked", "track"]
