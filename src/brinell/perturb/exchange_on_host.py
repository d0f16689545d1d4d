"""Many copies of pixels of one image, one after the other, on a CPU: sorted instead of scattered (see `exchange`)."""

from __future__ import annotations

from typing import Any

import numpy as np


def replay(planes: np.ndarray, targets: np.ndarray, sources: np.ndarray) -> np.ndarray:
    """Return planes (C, N), uint8, after copies from the pixels `sources` to the pixels `targets`, int64 (n,).

    Writes are sorted by pixel, then by time. A copy finds the last write to its source before its own time by going back
    from the last one of all; the first key stands for no write. Colours follow these links to their ends.
    """
    count, pixels = len(targets), planes.shape[1]
    bits = count.bit_length()
    kind: Any = np.uint32 if (pixels + 1) << bits <= 1 << 32 else np.uint64  # half the bytes sort in half the time
    keys = np.zeros(count + 1, kind)
    keys[1:] = (targets + 1) << bits | np.arange(count)
    keys.sort()
    times, written = (keys & kind((1 << bits) - 1)).astype(np.intp), (keys >> kind(bits)).astype(np.intp) - 1
    last = np.zeros(pixels, np.intp)
    last[written[1:]] = np.arange(1, count + 1)  # the last of several values stays

    read = sources.take(times)
    now = ((read + 1) << bits | times).astype(kind)
    link = last.take(read)
    late = (keys.take(link) >= now).nonzero()[0]
    while len(late):
        earlier = link.take(late) - 1
        link[late] = earlier
        late = late[keys.take(earlier) >= now.take(late)]

    final = last[last > 0]
    origin = read.take(_roots(np.where(written.take(link) == read, link, 0)).take(final))
    changed, target = planes.copy(), written.take(final)
    for before, after in zip(planes, changed, strict=True):
        after[target] = before.take(origin)
    return changed


def _roots(link: np.ndarray) -> np.ndarray:
    """Return the write at the end of each chain of links (0 ends it)."""
    root = np.arange(len(link))
    moving = link.nonzero()[0]
    root[moving] = link.take(moving)
    while len(moving):
        up = root.take(moving)
        further = root.take(up)
        root[moving] = further
        moving = moving[further != up]
    return root
