"""Blurred rectangles of one image on a CPU: those of a round lie side by side, so that OpenCV blurs them at once."""

from __future__ import annotations

import cv2
import numpy as np

from brinell.perturb.patches import Patches

AROUND = 2  # pixels that a 5×5 filter sees on each side


def blur_rectangles(planes: np.ndarray, patches: Patches, rounds: np.ndarray, reflections: np.ndarray) -> np.ndarray:
    """Return planes (C, H, W), uint8, after a 5×5 box blur of n rectangles, (1, n) each, round after round.

    Row 2 + i of `reflections` (14, 11) says which row or column of a rectangle its i-th one is, by its side: those outside
    are reflected.
    """
    channels, height, width = planes.shape
    area, longest = height * width, reflections.shape[0] - 2 * AROUND
    pixels = np.empty((area + 1, 4), np.uint8)  # the last one takes what lies outside of rectangles
    picture = pixels[:area].reshape(height, width, 4)
    cv2.merge([planes[channel % channels] for channel in range(4)], picture)
    packed = pixels.view(np.uint32)[:, 0]

    order = rounds.argsort(kind="stable")
    sides = (patches.top, patches.left, patches.height, patches.width)
    top, left, tall, wide = (side[0].numpy()[order] for side in sides)
    rows, columns = (reflections[:, tall] + top) * width, (reflections[:, wide] + left).T
    offsets = np.arange(longest)
    own_rows = np.where(offsets[:, None] < tall, (offsets[:, None] + top) * width, area)
    own_columns = np.where(offsets < wide[:, None], offsets + left[:, None], area)

    ends = np.bincount(rounds).cumsum().tolist()
    for part in map(slice, [0, *ends[:-1]], ends):
        seen = packed.take(rows[:, part, None] + columns[part])  # (14, m, 14): rectangles in a row
        blurred = cv2.blur(seen.view(np.uint8).reshape(len(rows), -1, 4), (5, 5)).view(np.uint32).reshape(seen.shape)
        targets = np.minimum(own_rows[:, part, None] + own_columns[part], area)
        packed[targets] = blurred[AROUND:-AROUND, :, AROUND:-AROUND]
    return np.stack(cv2.split(picture)[:channels])
