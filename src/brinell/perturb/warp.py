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
    grid = sampling_grid(matrices, height, width, images.device)
    moved: Tensor = grid_sample(canvas, grid, "bilinear", "zeros", align_corners=False)
    return moved.round_().to(torch.uint8)


def sampling_grid(matrices: Tensor, height: int, width: int, device: torch.device) -> Tensor:
    """For each pixel of the moved image, where it comes from on a canvas whose sides are powers of two, as `grid_sample`
    has it: float32 (B, H, W, 2), -1 to 1 from edge to edge.
    """
    # on the host, where an inverse is the same for every device
    back: Tensor = torch.linalg.inv(matrices.cpu()) * PARTS
    flat = not bool(back[:, 2, :2].any())
    x = torch.arange(width, dtype=torch.float64)[None, :, None]
    y = torch.arange(height, dtype=torch.float64)[None, :, None]
    # what a pixel's column and what its row adds: one sum for each pixel, and no matrix product
    across = (back[:, None, :, 0] * x).to(device)[:, None]
    down = (back[:, None, :, 1] * y + back[:, None, :, 2]).to(device)[:, :, None]
    where = across[..., :2] + down[..., :2]
    if not flat:
        depth = (across[..., 2:] + down[..., 2:]) / PARTS
        # what lies behind the camera is not seen
        where = torch.where(depth > 0, where / depth, -2.0 * PARTS)
    # what lies further outside is as black as what lies two pixels outside
    parts = where.round_().clamp_(-2 * PARTS, 2 * PARTS * (max(height, width) + 1)).to(torch.float32)
    sides = torch.tensor([_power_of_two(width), _power_of_two(height)], dtype=torch.float32, device=device)
    return parts.mul_(2 / PARTS / sides).add_(1 / sides - 1)


def _power_of_two(side: int) -> int:
    return 1 << (side - 1).bit_length()
