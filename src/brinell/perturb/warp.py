"""Moving images: one warp for everything that moves them. Bilinear, black outside.

The rule for rounding: where a pixel comes from is rounded to 1/256 of a pixel, the four pixels around that place are
weighted exactly, and the sum is rounded half to even. Libraries differ here, and a search stops at other angles for it.
Our rule has whole numbers only (8 bits of grey and 16 of weight fit in a float32), so that every device and batch gives
the same pixels, and moves by whole pixels are exact.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import grid_sample, pad

PARTS = 256  # of a pixel, to which places are rounded


def warp(images: Tensor, matrices: Tensor) -> Tensor:
    """uint8 images (B, C, H, W) moved by float64 matrices (B, 3, 3), which take a pixel's (x, y, 1) to where it goes."""
    height, width = images.shape[2:]
    # grid_sample divides by the sides: for powers of two that is exact
    tall, wide = _power_of_two(height), _power_of_two(width)
    canvas = pad(images.to(torch.float32), (0, wide - width, 0, tall - height))
    grid = sampling_grid(matrices.to(images.device), height, width)
    moved: Tensor = grid_sample(canvas, grid, "bilinear", "zeros", align_corners=False)
    return moved.round_().to(torch.uint8)


def sampling_grid(matrices: Tensor, height: int, width: int) -> Tensor:
    """For each pixel of the moved image, where it comes from on a canvas whose sides are powers of two, as `grid_sample`
    has it: float32 (B, H, W, 2), -1 to 1 from edge to edge.
    """
    # on the host, where a 3×3 inverse is the same for every device
    back: Tensor = torch.linalg.inv(matrices.cpu()).to(matrices.device) * PARTS
    x = torch.arange(width, dtype=torch.float64, device=matrices.device)[None, :, None]
    y = torch.arange(height, dtype=torch.float64, device=matrices.device)[None, :, None]
    # a pixel's part by its column and its part by its row: one sum for each pixel and no matrix product
    across = back[:, None, :, 0] * x
    down = back[:, None, :, 1] * y + back[:, None, :, 2]
    where = across[:, None, :, :2] + down[:, :, None, :2]
    if bool((matrices[:, 2, :2] != 0).any()):
        depth = (across[:, None, :, 2:] + down[:, :, None, 2:]) / PARTS
        where = torch.where(depth > 0, where / depth, -2 * PARTS)
    sides = torch.tensor([_power_of_two(width), _power_of_two(height)], dtype=torch.float32, device=matrices.device)
    # what lies further outside is as black as what lies two pixels outside
    parts = where.round_().clamp_(-2 * PARTS, (max(height, width) * 2 + 2) * PARTS).to(torch.float32)
    return parts.mul_(2 / PARTS / sides).add_(1 / sides - 1)


def _power_of_two(side: int) -> int:
    return 1 << (side - 1).bit_length()
