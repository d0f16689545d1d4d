"""Gaussian smoothing of float64 fields on the host, to the bit as SciPy's `gaussian_filter` does it.

SciPy would be a tenth of the installation for this alone. OpenCV's filter rounds its weights and its sums differently,
and a threshold after it would turn that into other pixels.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

TRUNCATE = 4.0  # standard deviations, SciPy's default

Border = Literal["edge", "symmetric"]  # NumPy's names of SciPy's "nearest" and "reflect"


def smooth(fields: np.ndarray, sigma: float, border: Border) -> np.ndarray:
    """Smooth the last two axes, (…, H, W), rows first."""
    radius = int(TRUNCATE * sigma + 0.5)
    places = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 / (sigma * sigma) * places**2)
    weights /= weights.sum()
    return _smooth(_smooth(fields, weights, border, -2), weights, border, -1)


def _smooth(fields: np.ndarray, weights: np.ndarray, border: Border, axis: int) -> np.ndarray:
    """Smooth one axis. The order of the sum, from the ends to the centre after the centre, is SciPy's."""
    radius, length = len(weights) // 2, fields.shape[axis]
    widths = [(0, 0)] * fields.ndim
    widths[axis] = (radius, radius)
    padded = np.moveaxis(np.pad(fields, widths, mode=border), axis, 0)
    total = padded[radius : radius + length] * weights[radius]
    for place in range(radius):
        pair = padded[place : place + length] + padded[2 * radius - place : 2 * radius - place + length]
        pair *= weights[place]
        total += pair
    return np.moveaxis(total, 0, axis)
