"""Snow and fog of ImageNet-C."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from brinell.draws import Draws
from brinell.perturb.corruptions.fields import normal, zoom
from brinell.perturb.corruptions.motion import blur_along, draw_angles
from brinell.perturb.corruptions.severity import Constants, Corruption, Row, corruption
from brinell.perturb.weather import add_fog, draw_plasma

_LUMA = (0.299, 0.587, 0.114)  # weights of red, green and blue


@corruption(
    "fog",
    Corruption(
        "fog",
        "weather",
        Constants(
            [(1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)],
            [(0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)],
            (0, 2),
            (0, 3),
        ),
    ),
)
def fog(images: Tensor, constants: Row, draws: Draws) -> Tensor:
    """Add fog, a plasma, and rescale to keep the brightest value."""
    thickness, decay = constants
    # the published code multiplies the random term by its own width, so it falls with the square
    ratio = torch.full((len(images),), 1 / decay**2, dtype=torch.float64)
    return add_fog(images, 255 * thickness, draw_plasma(draws, images, ratio))


@corruption(
    "snow",
    Corruption(
        "snow",
        "weather",
        Constants(
            [
                (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
                (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
                (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
                (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
                (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
            ],
            [
                (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
                (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
                (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
                (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
                (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
            ],
            (0, 0.1, 3, 1, 10, 4, 1),
            (0, 0.1, 1, 1, 8, 3, 1),
            counts=(4,),
        ),
    ),
)
def snow(images: Tensor, constants: Row, draws: Draws) -> Tensor:
    """Whiten the image, and add two layers of falling flakes: enlarged noise above a threshold, blurred by its motion."""
    mean, deviation, factor, threshold, radius, sigma, kept = constants
    batch, _, height, width = images.shape
    field = normal(draws, 0, torch.Size([batch, 1, height, width]), deviation).add_(mean)
    # `threshold_` keeps what is above a number, and the threshold itself is kept
    below = float(np.nextafter(np.float32(threshold), np.float32(-np.inf)))
    layer = torch.threshold_(zoom(field, factor), below, 0).clamp_(0, 1).mul_(255).floor_()
    layer = blur_along(layer, int(radius), sigma, draw_angles(draws, 1, -135, -45)).round_()
    grey = images if images.shape[1] == 1 else _grey(images)
    white = torch.maximum(images, grey.mul(1.5).add_(127.5)).mul_(1 - kept)
    return images.mul_(kept).add_(white).add_(layer).add_(layer.flip(2, 3))


def _grey(images: Tensor) -> Tensor:
    red, green, blue = (images[:, i : i + 1] * weight for i, weight in enumerate(_LUMA))
    return red.add_(green).add_(blue)
