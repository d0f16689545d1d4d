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
    model_input = pad(images.to(torch.float32), (0, wide - width, 0, tall - height))
    grid = sampling_grid(matrices, height, width, images.device)
    moved: Tensor = grid_sample(model_input, grid, "bilinear", "zeros", align_corners=False)
    return moved.round_().to(torch.uint8)


def sampling_grid(matrices: Tensor, height: int, width: int, device: torch.device) -> Tensor:
    """For each pixel of the moved image, where it comes from on a model input whose sides are powers of two, as `grid_sample`
    has it: float32 (B, H, W, 2), -1 to 1 from edge to edge.
    """
    # on the host, where an inverse is the same for every device
    back: Tensor = torch.linalg.inv(matrices.cpu()) * PARTS
    x = torch.arange(width, dtype=torch.float64)[None, :, None]
    y = torch.arange(height, dtype=torch.float64)[None, :, None]
    across = (back[:, None, :, 0] * x).to(device)
    down = (back[:, None, :, 1] * y + back[:, None, :, 2]).to(device)
    where = source_positions(across, down, flat=not bool(back[:, 2, :2].any()), unit=PARTS, behind=-2.0 * PARTS)
    # what lies further outside is as black as what lies two pixels outside
    parts = where.round_().clamp_(-2 * PARTS, 2 * PARTS * (max(height, width) + 1)).to(torch.float32)
    sides = torch.tensor([_power_of_two(width), _power_of_two(height)], dtype=torch.float32, device=device)
    return parts.mul_(2 / PARTS / sides).add_(1 / sides - 1)


def source_positions(across: Tensor, down: Tensor, *, flat: bool, unit: float = 1.0, behind: float) -> Tensor:
    """Where the pixels of a moved image come from, (B, H, W, 2), from what their column and what their row adds to it.

    `across` is (B, W, 3) and `down` (B, H, 3), both in `unit`s: one sum for each pixel, and no matrix product. Where the
    motion is not `flat` the third number is the depth; what lies `behind` the camera comes from there.
    """
    across, down = across[:, None], down[:, :, None]
    where = across[..., :2] + down[..., :2]
    if flat:
        return where
    depth = (across[..., 2:] + down[..., 2:]) / unit
    return torch.where(depth > 0, where / depth, behind)


def _power_of_two(side: int) -> int:
    return 1 << (side - 1).bit_length()
