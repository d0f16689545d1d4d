"""Spatter of ImageNet-C: drops of water on the lens, at higher severities mud.

A layer of drops depends on the draws alone and is made on the host, by NumPy and OpenCV, one image per thread.
"""

from __future__ import annotations

import cv2
import numpy as np
import torch
from torch import Tensor

from brinell.draws import Draws
from brinell.perturb.codec import each_image
from brinell.perturb.corruptions.fields import normal
from brinell.perturb.corruptions.gaussian import smooth
from brinell.perturb.corruptions.severity import EXTRA, Constants, Corruption, Row, corruption

_WATER, _MUD = (175.0, 238.0, 238.0), (63.0, 42.0, 20.0)  # colours, red first
_LUMA = (0.2989, 0.5870, 0.1140)
_EMBOSS = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])


@corruption(
    "spatter",
    Corruption(
        "spatter",
        "weather",
        Constants(
            [
                (0.65, 0.3, 4, 0.69, 0.6, 0),
                (0.65, 0.3, 3, 0.68, 0.6, 0),
                (0.65, 0.3, 2, 0.68, 0.5, 0),
                (0.65, 0.3, 1, 0.65, 1.5, 1),
                (0.67, 0.4, 1, 0.65, 1.5, 1),
            ],
            [
                (0.62, 0.1, 0.7, 0.7, 0.5, 0),
                (0.65, 0.1, 0.8, 0.7, 0.5, 0),
                (0.65, 0.3, 1, 0.69, 0.5, 0),
                (0.65, 0.1, 0.7, 0.69, 0.6, 1),
                (0.65, 0.1, 0.5, 0.68, 0.6, 1),
            ],
            (0.65, 0.3, 4, 0.69, 0, 0),
            (0.62, 0.1, 0.7, 0.7, 0, 0),
            counts=(5,),
        ),
        "local",
        family=EXTRA,
    ),
)
def spatter(images: Tensor, constants: Row, draws: Draws) -> Tensor:
    """Add drops of water, or from severity 4 on cover parts with mud."""
    batch, channels, height, width = images.shape
    mean, deviation, *rest, muddy = constants
    field = normal(draws, 0, torch.Size([batch, height, width])).mul_(deviation).add_(mean).cpu().double().numpy()
    layers = each_image(images.device, lambda one: (_mud if muddy else _water)(one, *rest), field)
    layer = torch.from_numpy(np.stack(layers)).to(torch.float32).to(images.device)[:, None]
    colour = torch.tensor(_MUD if muddy else _WATER)
    if channels == 1:  # on the host: devices add three numbers in different orders
        colour = (colour * torch.tensor(_LUMA)).sum(0, keepdim=True)
    if muddy:
        images.mul_(1 - layer)
    return images.add_(layer * colour.to(images.device)[:, None, None])


def _mud(field: np.ndarray, sigma: float, threshold: float, spread: float) -> np.ndarray:
    """Return how much of each pixel is covered."""
    wet = (smooth(field, sigma, "edge") > threshold).astype(np.float64)
    cover = smooth(wet, spread, "edge")
    cover[cover < 0.8] = 0
    return cover


def _water(field: np.ndarray, sigma: float, threshold: float, strength: float) -> np.ndarray:
    """Return how much light each drop adds: most inside of it, lit from one side."""
    wet = smooth(field, sigma, "edge")
    wet[wet < threshold] = 0
    drops = (wet * 255).astype(np.int64).astype(np.uint8)  # the published code's conversion, which wraps around above 255
    depth = cv2.distanceTransform(255 - cv2.Canny(drops, 50, 150), cv2.DIST_L2, 5)
    depth = cv2.blur(np.minimum(depth, 20), (3, 3)).astype(np.uint8)
    relief = cv2.filter2D(cv2.equalizeHist(depth), cv2.CV_8U, _EMBOSS)
    light: np.ndarray = drops * cv2.blur(relief, (3, 3)).astype(np.float32)
    brightest = light.max()
    return light * (strength / brightest) if brightest > 0 else light
