"""What a corruption did to a picture, in a few numbers: grey levels, spectrum, and what it covers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

Pixels = NDArray[np.uint8]
Array = NDArray[np.float64]
CLEAR = 20  # grey levels that a pixel changes clearly by
WHITE = 250


def statistics(name: str, clean: Pixels, changed: Pixels) -> dict[str, float]:
    """Return statistics of a changed picture (H, W, 3) by name."""
    change = changed.astype(np.float64) - clean
    covered = _covered(name, clean, changed)
    patches = int(ndimage.label(covered)[1])
    means = changed.mean((0, 1))
    return {
        "change": float(np.abs(change).mean()),
        "red": float(means[0]),
        "green": float(means[1]),
        "blue": float(means[2]),
        "deviation": float(changed.std()),
        "slope": _slope(change),
        "covered": 100 * float(covered.mean()),
        "patches": float(patches),
        "patch": float(covered.sum() / max(patches, 1)),
    }


def _covered(name: str, clean: Pixels, changed: Pixels) -> NDArray[np.bool_]:
    """Return which pixels the pattern covers: grey, black or white ones that were not, or those that changed clearly."""
    same = (clean == changed).all(-1)
    if name == "checkerboard_cutout":
        return np.asarray((changed == 128).all(-1) & ~same)
    if name == "blue_noise_sample":
        return np.asarray((changed == 0).all(-1) & ~same)
    if name.endswith("sparkles"):
        return np.asarray((changed >= WHITE).all(-1) & ~same)
    return np.asarray(np.abs(changed.astype(np.float64) - clean).mean(-1) >= CLEAR)


def _slope(change: Array) -> float:
    """Return by which power of the frequency the change's spectrum falls or grows."""
    power = (np.abs(np.fft.fft2(change, axes=(0, 1))) ** 2).sum(-1)
    height, width = power.shape
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(height), np.fft.fftfreq(width), indexing="ij")) * min(height, width)
    ring = np.rint(frequency).astype(int)
    rings = np.arange(1, min(height, width) // 2 + 1)
    means = ndimage.mean(power, ring, rings)
    return float(np.polyfit(np.log(rings), np.log(np.asarray(means) + 1e-9), 1)[0])


def ramps(side: int) -> Pixels:
    """Return a picture whose red is the column, whose green is the row, and whose blue is grey."""
    row, column = np.mgrid[:side, :side]
    return np.stack([column, row, np.full_like(row, 128)], -1).astype(np.uint8)


def displacements(changed: Pixels) -> dict[str, float]:
    """Return how far pixels of the ramps moved: red and green say from where, blue how much light was added."""
    inside = ((changed > 0) & (changed < 255)).all(-1)
    values = changed.astype(np.float64)
    moved = (values[..., :2] - values[..., 2:] + 128 - ramps(len(changed))[..., :2])[inside]
    size = np.hypot(*moved.T)
    return {"moved": float(size.mean()), "far": 100 * float((size > 2).mean())}
