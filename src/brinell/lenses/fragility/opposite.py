"""Windows on the other side of the right one of a pair: a control for pairs of windows of which one fails."""

from __future__ import annotations

import torch
from torch import Tensor


def opposite_windows(failing: Tensor, right: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the windows (left, top, side) on the other side of the `right` ones, shifted or shrunk as much as the
    `failing` ones, float64 (T, 3), and which of them lie in originals of these heights and widths, (T, 2).
    """
    shrunk = right[:, 2:] - failing[:, 2:]
    windows = torch.cat([2 * right[:, :2] + shrunk - failing[:, :2], failing[:, 2:]], 1)
    corners, side = windows[:, :2], windows[:, 2:]
    return windows, ((corners >= 0) & (corners + side <= sizes.flip(1))).all(1)
