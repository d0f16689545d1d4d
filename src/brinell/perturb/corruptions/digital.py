"""Digital corruptions of ImageNet-C: brightness, contrast, saturation, pixels and compression.

Brightness and saturation are those of HSV. With the hue kept, the way there and back is a formula of a pixel's largest
and smallest value.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from brinell.perturb.codec import compress
from brinell.perturb.corruptions.severity import EXTRA, Constants, Corruption, Row, corruption
from brinell.resizing.resample import resize


@corruption(
    "brightness",
    Corruption(
        "brightness",
        "luminance",
        Constants([(0.1,), (0.2,), (0.3,), (0.4,), (0.5,)], [(0.05,), (0.1,), (0.15,), (0.2,), (0.3,)], (0,)),
        domain="colour",
        bytes=True,
    ),
)
def brightness(images: Tensor, constants: Row) -> Tensor:
    """Add to the value of every pixel in HSV; its hue and saturation stay."""
    value = images.amax(1, keepdim=True)
    # black has no saturation and becomes grey: the table treats it as 1 in every channel
    lifted = torch.maximum(images, 1 - value.clamp(max=1))
    factor = _lightening(constants[0], images.device).index_select(0, value.flatten().to(torch.int32))
    return lifted.to(torch.float32).mul_(factor.view(value.shape))


@lru_cache(64)
def _lightening(added: float, device: torch.device) -> Tensor:
    """Return the factor of each value 0 to 255, float32 (256,)."""
    value = torch.arange(256, dtype=torch.float32)
    return (value.add(255 * added).clamp_(max=255) / value.clamp(min=1)).to(device)


@corruption(
    "contrast",
    Corruption(
        "contrast",
        "luminance",
        Constants([(0.4,), (0.3,), (0.2,), (0.1,), (0.05,)], [(0.75,), (0.5,), (0.4,), (0.3,), (0.15,)], (1,)),
        domain="colour",
    ),
)
def contrast(images: Tensor, constants: Row) -> Tensor:
    """Move every value towards the mean of its channel."""
    (kept,) = constants
    # sums of whole numbers, which float32 holds exactly for rows and float64 for images, in any order
    sums = images.sum(3, keepdim=True).sum(2, keepdim=True, dtype=torch.float64)
    mean = sums.div_(images[0, 0].numel()).mul_(1 - kept)
    return images.mul_(kept).add_(mean.to(torch.float32))


@corruption(
    "saturate",
    Corruption(
        "saturate",
        "luminance",
        Constants(
            [(0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)], [(0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)], (1, 0)
        ),
        domain="colour",
        family=EXTRA,
    ),
)
def saturate(images: Tensor, constants: Row) -> Tensor:
    """Scale the saturation in HSV: less of it at severities 1 and 2, more at 3 to 5. Images of one channel have none.

    Grey has no hue, which counts as red: where saturation is added, grey turns red.
    """
    factor, added = constants
    if images.shape[1] == 1:
        return images
    value = images.amax(1, keepdim=True)
    spread = value - images.amin(1, keepdim=True)
    grey = spread == 0
    # saturation times value, before and after: the distance of the smallest value from the largest
    after = torch.minimum(spread * factor + value * added, value)
    below = (value - images).div_(spread.masked_fill_(grey, 1))
    below[:, 1:].masked_fill_(grey, 1)
    return value - below.mul_(after)


@corruption(
    "jpeg_compression",
    Corruption(
        "JPEG compression",
        "digital",
        Constants([(25,), (18,), (15,), (10,), (7,)], [(80,), (65,), (58,), (50,), (40,)], (100,), counts=(0,)),
        bytes=True,
    ),
)
def jpeg_compression(images: Tensor, constants: Row) -> Tensor:
    """Compress as JPEG."""
    qualities = torch.full((len(images),), int(constants[0]), device=images.device)
    return compress(images, qualities, swapped=False)


@corruption(
    "pixelate",
    Corruption(
        "pixelate",
        "digital",
        Constants([(0.6,), (0.5,), (0.4,), (0.3,), (0.25,)], [(0.95,), (0.9,), (0.85,), (0.75,), (0.65,)], (1,)),
        bytes=True,
    ),
)
def pixelate(images: Tensor, constants: Row) -> Tensor:
    """Shrink the image by averaging, and enlarge its pixels."""
    height, width = images.shape[2:]
    small = resize(images, int(height * constants[0]), int(width * constants[0]), "box")
    return resize(small, height, width, "box")
