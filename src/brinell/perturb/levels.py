"""Grey levels, 0 to 255: blends of images with fields, and the way to whole levels.

Every product and every sum is rounded to float32 by itself, on every device. Where there are Triton kernels, each function
is one pass over memory.
"""

from __future__ import annotations

import torch
from torch import Tensor

from brinell.kernels import kernels_for
from brinell.resizing.resample import to_device

PerImage = Tensor | float  # host values (B,), or one number for all images


def per_image(values: Tensor, images: Tensor) -> Tensor:
    """Return host values (B,) on the images' device, as float32 (B, 1, 1, 1)."""
    return to_device(values.to(torch.float32), images.device)[:, None, None, None]


def blend(images: Tensor, keep: PerImage = 1, weight: PerImage = 0, field: Tensor | None = None) -> Tensor:
    """Return keep·x + weight·F for images x, float32 (B, C, H, W), which are overwritten.

    The field F is float32 (B, C or 1, H, W), and may be overwritten, or (C, H, W), the same for all images, and is not; it
    is 1 everywhere by default.
    """
    kernels = kernels_for("levels", images)
    if kernels is not None and images.is_contiguous():
        both = torch.stack([torch.as_tensor(one).to(torch.float32).expand(len(images)) for one in (keep, weight)])
        kernels.blend(images, to_device(both, images.device), field)
        return images
    keep, weight = (per_image(one, images) if isinstance(one, Tensor) else one for one in (keep, weight))
    if isinstance(keep, Tensor) or keep != 1:
        images.mul_(keep)
    if field is not None:
        weight = field.mul_(weight) if field.dim() == 4 else field * weight
    return images.add_(weight) if isinstance(weight, Tensor) or weight else images


def to_whole(levels: Tensor) -> Tensor:
    """Return float32 grey levels, which may be overwritten, clipped to 0 to 255 and rounded half to even, as uint8."""
    kernels = kernels_for("levels", levels)
    if kernels is not None and levels.dtype == torch.float32:
        made: Tensor = kernels.to_whole(levels.contiguous())
        return made
    return to_bytes(levels.clamp_(0, 255).round_())


def to_bytes(levels: Tensor) -> Tensor:
    """Return whole grey levels as uint8, by int16: torch converts floats to bytes several times slower on a CPU."""
    return levels.to(torch.int16).to(torch.uint8)
