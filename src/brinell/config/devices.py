"""Several devices as text: "0-7", "0,2", "cuda:1" or "cpu,cpu"."""

from __future__ import annotations

import re

from brinell.errors import ConfigError

MOST = 1024


def parse_devices(text: str) -> list[str]:
    """Return the devices that a text names; numbers are those of CUDA devices."""
    devices: list[str] = []
    for item in text.split(","):
        found = re.fullmatch(r"\s*(?:(\d{1,4})(?:-(\d{1,4}))?|(cpu|cuda|cuda:\d{1,4}))\s*", item)
        if found is None or (found[2] is not None and int(found[2]) < int(found[1])):
            raise ConfigError(f"expected devices as 0-7, 0,2, cuda:1 or cpu,cpu, got {text!r}")
        first, last, name = found.groups()
        devices += [name] if name else [f"cuda:{number}" for number in range(int(first), int(last or first) + 1)]
    if len(devices) > MOST:
        raise ConfigError(f"expected at most {MOST} devices, got {len(devices):,}")
    return devices
