"""Moving images: one warp for everything that moves them. Bilinear, black outside."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def warp(images: Tensor, matrices: Tensor) -> Tensor:
    """uint8 images (B, C, H, W) moved by float64 matrices (B, 3, 3), which take a pixel's (x, y, 1) to where it goes."""
    grid = sampling_grid(matrices, *images.shape[2:]).to(images.device)
    moved = functional.grid_sample(images.to(torch.float32), grid, "bilinear", "zeros", align_corners=True)
    return moved.round_().to(torch.uint8)


def sampling_grid(matrices: Tensor, height: int, width: int) -> Tensor:
    """For each pixel of the moved image, where it comes from, as `grid_sample` has it: float32 (B, H, W, 2), -1 to 1."""
    back = torch.linalg.inv(matrices)
    x, y = torch.arange(width, dtype=torch.float64), torch.arange(height, dtype=torch.float64)
    # a row of the matrix at every pixel: its part of x, its part of y, and the rest, without a matrix product
    row, column, one = (back[:, :, place, None, None] for place in range(3))
    where = row * x + (column * y[:, None] + one)
    across, down = where[:, 0] / where[:, 2], where[:, 1] / where[:, 2]
    scaled = torch.stack([across * (2 / max(1, width - 1)) - 1, down * (2 / max(1, height - 1)) - 1], -1)
    return scaled.to(torch.float32)
