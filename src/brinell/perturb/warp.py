"""Projective warps of images: bilinear interpolation, black outside.

Rounding: the source position of a pixel is rounded to 1/256 of a pixel, and the four pixels around it are weighted exactly;
the caller rounds the sum. Libraries differ here, enough for a search to stop at other angles. This rule uses whole
numbers only (8 bits of grey times 16 bits of weight fit into float32), so every device and batch size gives the same
pixels, and shifts by whole pixels are exact.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import grid_sample, pad

from brinell.kernels import kernels_for
from brinell.resizing.resample import to_device

PARTS = 256  # positions are rounded to this fraction of a pixel


def warp(images: Tensor, matrices: Tensor) -> Tensor:
    """Move uint8 images (B, C, H, W) by float64 matrices (B, 3, 3), which map a pixel's (x, y, 1) to its new position.

    The result is float32, in 0 to 255.
    """
    kernels = kernels_for("warp", images)
    if kernels is not None:
        back = _backwards(matrices)
        made: Tensor = kernels.warp(images, to_device(back.contiguous(), images.device), flat=_is_flat(back), parts=PARTS)
        return made
    height, width = images.shape[2:]
    # grid_sample divides by the sides, which is exact for powers of two
    tall, wide = _power_of_two(height), _power_of_two(width)
    padded = pad(images.to(torch.float32), (0, wide - width, 0, tall - height))
    grid = sampling_grid(matrices, height, width, images.device)
    moved: Tensor = grid_sample(padded, grid, "bilinear", "zeros", align_corners=False)
    return moved


def _backwards(matrices: Tensor) -> Tensor:
    """Return inverses in parts of a pixel, float64 (B, 3, 3): on the host, so that all devices use the same inverse."""
    inverse: Tensor = torch.linalg.inv(matrices.cpu())
    return inverse * PARTS


def _is_flat(back: Tensor) -> bool:
    """Return whether motions are affine."""
    return not bool(back[:, 2, :2].any())


def sampling_grid(matrices: Tensor, height: int, width: int, device: torch.device) -> Tensor:
    """Return the source position of each pixel of the moved image, in `grid_sample`'s coordinates on an image padded to
    powers of two: float32 (B, H, W, 2), from -1 to 1 between the edges.
    """
    back = _backwards(matrices)
    x = torch.arange(width, dtype=torch.float64)[None, :, None]
    y = torch.arange(height, dtype=torch.float64)[None, :, None]
    across = (back[:, None, :, 0] * x).to(device)
    down = (back[:, None, :, 1] * y + back[:, None, :, 2]).to(device)
    position = source_positions(across, down, flat=_is_flat(back), unit=PARTS, behind=-2.0 * PARTS)
    # two pixels outside everything is black already
    parts = position.round_().clamp_(-2 * PARTS, 2 * PARTS * (max(height, width) + 1)).to(torch.float32)
    sides = torch.tensor([_power_of_two(width), _power_of_two(height)], dtype=torch.float32, device=device)
    return parts.mul_(2 / PARTS / sides).add_(1 / sides - 1)


def source_positions(across: Tensor, down: Tensor, *, flat: bool, unit: float = 1.0, behind: float) -> Tensor:
    """Return the source positions (B, H, W, 2) of a moved image as the sum of a column's and a row's contribution.

    `across` (B, W, 3) and `down` (B, H, 3) are in `unit`s; a sum per pixel replaces a matrix product. Unless the motion is
    `flat` (affine), the third component is the depth, and pixels behind the camera get the position `behind`.
    """
    across, down = across[:, None], down[:, :, None]
    position = across[..., :2] + down[..., :2]
    if flat:
        return position
    depth = (across[..., 2:] + down[..., 2:]) / unit
    return torch.where(depth > 0, position / depth, behind)


def warp_nearest(masks: Tensor, matrices: Tensor) -> Tensor:
    """Move masks (B, C, H, W) of any type as `warp` moves images: each pixel is that of the nearest source, 0 outside."""
    height, width = masks.shape[2:]
    back: Tensor = torch.linalg.inv(matrices.cpu())
    x = torch.arange(width, dtype=torch.float64)[None, :, None]
    y = torch.arange(height, dtype=torch.float64)[None, :, None]
    across, down = back[:, None, :, 0] * x, back[:, None, :, 1] * y + back[:, None, :, 2]
    flat = not bool(back[:, 2, :2].any())
    column, row = source_positions(across, down, flat=flat, behind=-2.0).round().unbind(-1)
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    index = (row.clamp(0, height - 1) * width + column.clamp(0, width - 1)).long().flatten(1)[:, None].to(masks.device)
    moved = masks.flatten(2).gather(2, index.expand(-1, masks.shape[1], -1)).view_as(masks)
    return moved.masked_fill(~inside[:, None].to(masks.device), 0)


def _power_of_two(side: int) -> int:
    return 1 << (side - 1).bit_length()
