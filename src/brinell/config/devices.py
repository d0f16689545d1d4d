"""Where a run is measured, as text: several devices ("0-7", "0,2", "cuda:1", "cpu,cpu"), or a Ray cluster."""

from __future__ import annotations

import re
from dataclasses import dataclass

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


@dataclass(frozen=True)
class RayCluster:
    """A Ray cluster: its address (None: a new one on this machine, or the one that Ray finds), and what a worker takes.

    Without a number of workers, as many as fit.
    """

    address: str | None = None
    workers: int | None = None
    gpus: float | None = None
    cpus: float = 1.0


def parse_cluster(text: str) -> RayCluster:
    """Return the cluster that a text names: ray, ray://HOST:PORT, each with ?workers=N&gpus=X&cpus=X."""
    expected = f"expected ray or ray://HOST:PORT, with ?workers=N&gpus=X&cpus=X, got {text!r}"
    place, _, options = text.partition("?")
    if place != "ray" and not re.fullmatch(r"ray://[^\s/]+", place):
        raise ConfigError(expected)
    given = dict(item.split("=", 1) if "=" in item else (item, "") for item in options.split("&") if item)
    try:
        found = RayCluster(
            None if place == "ray" else place,
            int(given.pop("workers")) if "workers" in given else None,
            float(given.pop("gpus")) if "gpus" in given else None,
            float(given.pop("cpus", 1.0)),
        )
    except ValueError:
        raise ConfigError(expected) from None
    if given or (found.workers or 1) < 1 or (found.gpus or 0) < 0 or found.cpus <= 0:
        raise ConfigError(expected)
    return found
