"""The folder in which brinell keeps what it can compute or query again."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "BRINELL_CACHE"


def cache_folder() -> Path:
    """Return the cache folder: $BRINELL_CACHE, or brinell in the user's cache folder. It may not exist yet."""
    given = os.environ.get(VARIABLE)
    if given:
        return Path(given).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "brinell"
