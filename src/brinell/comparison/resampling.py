"""Bootstrap resamples: the draws of `brinell.draws`, made with NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from brinell.hashing import GOLDEN32, GOLDEN64, TRIPLE32, key, mix64, to_signed

Array = NDArray[np.float64]
RESAMPLES = 10_000
_DRAWS_AT_ONCE = 4_000_000  # resamples are drawn in chunks, to limit memory


def resampled_sums(columns: Array, seed: int, resamples: int = RESAMPLES) -> Array:
    """Return sums over images drawn with replacement: columns (N, …) give (resamples, …)."""
    count = len(columns)
    flat = columns.reshape(count, -1)
    size = max(1, _DRAWS_AT_ONCE // max(1, count))
    sums = [np.empty((0, flat.shape[1]))]
    for start in range(0, resamples, size):
        numbers = np.arange(start, min(start + size, resamples))
        cells = draw_below(key("bootstrap", seed), numbers, count, count) + count * np.arange(len(numbers))[:, None]
        times = np.bincount(cells.ravel(), minlength=len(numbers) * count).reshape(len(numbers), count)
        sums.append(times.astype(np.float64) @ flat)
    return np.concatenate(sums).reshape(resamples, *columns.shape[1:])


def draw_below(name: int, streams: NDArray[np.int64], count: int, bound: int) -> NDArray[np.int64]:
    """Return what `Draws.of(name, streams).below(0, count, bound)` does: integers in [0, bound), (streams, count)."""
    keys = mix64(mix64(streams + to_signed(GOLDEN64, 64)) ^ name)
    first, second = keys.astype(np.uint32)[:, None], (keys >> 32).astype(np.uint32)[:, None]
    x = np.arange(count, dtype=np.uint32) * np.uint32(GOLDEN32) + first
    x ^= x >> 17
    x = x * np.uint32(TRIPLE32[0]) + second
    x ^= x >> 11
    x *= np.uint32(TRIPLE32[1])
    x ^= x >> 15
    x *= np.uint32(TRIPLE32[2])
    x ^= x >> 14
    return ((x.astype(np.uint64) * np.uint64(bound)) >> np.uint64(32)).astype(np.int64)
