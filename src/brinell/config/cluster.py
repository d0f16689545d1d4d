"""A cluster as text: "ray", or "ray://HOST:PORT" for one elsewhere."""

from __future__ import annotations

import re

from brinell.errors import ConfigError


def parse_cluster(text: str) -> str:
    """Return the cluster that a text names."""
    cluster = text.strip()
    if cluster != "ray" and re.fullmatch(r"ray://(\[[0-9a-fA-F:]+\]|[^\s/:\[\]]+)(:\d{1,5})?", cluster) is None:
        raise ConfigError(f"expected --on ray or --on ray://HOST:PORT, got {text!r}")
    return cluster
