"""Motion blur of ImageNet-C: a weighted sum along a line that starts at each pixel."""

from __future__ import annotations

import math
from functools import lru_cache

import cv2
import torch
from torch import Tensor
from torch.nn.functional import pad

from brinell.draws import Draws
from brinell.perturb.corruptions.severity import Constants, Corruption, Row, corruption
from brinell.perturb.corruptions.shifts import add_shifted, cut_line

_BITS = 16  # bits of the weights along the line


@corruption(
    "motion_blur",
    Corruption(
        "motion blur",
        "blur",
        Constants(
            [(10, 3), (15, 5), (15, 8), (15, 12), (20, 15)],
            [(6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)],
            (1, 0.1),
            counts=(0,),
        ),
    ),
)
def motion_blur(images: Tensor, constants: Row, draws: Draws) -> Tensor:
    """Blur along a line within 45 degrees of the horizontal (border repeated)."""
    radius, sigma = constants
    return blur_along(images, int(radius), sigma, draw_angles(draws, 0, -45, 45))


def draw_angles(draws: Draws, purpose: int, low: float, high: float) -> Tensor:
    """Draw one angle per image, in degrees, float64 (B,) on the host."""
    return low + (high - low) * draws.uniform(purpose, 1)[:, 0].cpu()


def blur_along(images: Tensor, radius: int, sigma: float, angles: Tensor) -> Tensor:
    """Return images of whole grey levels blurred along lines of 2·radius + 1 pixels, with the weights of half a Gaussian.

    As in ImageMagick, a line steps to the pixel nearest to its next point. Sums are of whole numbers, and so the same on
    every device.
    """
    step = torch.arange(2 * radius + 1, dtype=torch.float64)
    turn = torch.deg2rad(angles)[:, None]
    down, along = ((step * way - 0.5).ceil().to(torch.int64) for way in (turn.sin(), turn.cos()))
    weights = _line_weights(radius, sigma)
    if images.device.type == "cpu":
        made = torch.empty_like(images, memory_format=torch.contiguous_format)
        scaled = [weight * 2.0**-_BITS for weight in weights]
        for image, y, x, target in zip(images, down.tolist(), along.tolist(), made, strict=True):
            add_shifted(image, cut_line(y, x, scaled), cv2.BORDER_REPLICATE, target)
        return made
    reach = 2 * radius
    windows = pad(images, (reach,) * 4, mode="replicate").unfold(2, images.shape[2], 1).unfold(3, images.shape[3], 1)
    batch = torch.arange(len(images), device=images.device)
    down, along = ((shift.to(images.device) + reach).T for shift in (down, along))
    made = torch.zeros_like(images)
    for weight, y, x in zip(weights, down, along, strict=True):
        made.add_(windows[batch, :, y, x], alpha=weight)
    return made.mul_(2.0**-_BITS)


@lru_cache(256)
def _line_weights(radius: int, sigma: float) -> list[float]:
    """Return the weights along a line, whole numbers that sum to 2**16; ends are cut where they have none."""
    density = [math.exp(-0.5 * (step / sigma) ** 2) for step in range(2 * radius + 1)]
    total, done, weights = sum(density), 0.0, []
    for value in density:
        before, done = round(done / total * (1 << _BITS)), done + value
        weights.append(float(round(done / total * (1 << _BITS)) - before))
    return weights
