"""What a copy costs: time and storage, measured on a few originals."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from brinell.corruption.originals import Original
from brinell.corruption.render import Renderer

SECONDS = 3.0  # spent on an estimate, at most about that


@dataclass(frozen=True)
class CopyCost:
    """What is left of a copy: images to write, and about how many seconds and bytes that takes."""

    images: int
    seconds: float
    bytes: float


def estimate(renderer: Renderer, probed: Sequence[Original], left: int) -> CopyCost:
    """Estimate what it takes to write `left` originals at all settings, from a few originals at as many as time allows."""
    settings = len(renderer.copy.settings)
    seconds: list[float] = []
    sizes: list[float] = []
    began = time.perf_counter()
    for setting in _spread(settings):
        renderer.files(probed[:1], setting)  # what is computed once per operator or size is not counted
        start = time.perf_counter()
        files = renderer.files(probed, setting)
        seconds.append((time.perf_counter() - start) / len(files))
        sizes.append(sum(map(len, files)) / len(files))
        if time.perf_counter() - began > SECONDS:
            break
    images = left * settings
    threads = renderer.workers if renderer.device.type == "cpu" else 1
    return CopyCost(images, images * sum(seconds) / len(seconds) / threads, images * sum(sizes) / len(sizes))


def _spread(count: int) -> list[int]:
    """Return 0 to count - 1 in an order whose beginning is spread over all: operators differ more than severities do."""
    step = max(1, round(count * 0.618))
    while count > 1 and any(step % part == 0 and count % part == 0 for part in range(2, step + 1)):
        step += 1
    return [number * step % count for number in range(count)]
