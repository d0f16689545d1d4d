"""Sizes of spots of light: the defaults, and when they are scaled. Importing this costs nothing."""

from __future__ import annotations

from collections.abc import Sequence

SIGMAS = (10.0, 20.0, 30.0, 40.0)  # the paper's, in pixels of photographs of ImageNet
SHORT_SIDE = 375  # of a typical one, 500 by 375
SMALL = 4 * max(SIGMAS)  # pixels: on images below this, the largest spot (two sigmas each way) covers everything


def is_scaled(sigmas: Sequence[float], relative: bool | None, side: int) -> bool:
    """Whether sigmas in pixels are scaled on an image with this shorter side: the default ones, on small images."""
    return relative is None and tuple(sigmas) == SIGMAS and side < SMALL
