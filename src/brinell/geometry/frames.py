"""Images that move: whole, in the model's scale, on the model's device. Bilinear, zeros outside, one interpolation.

Unlike `perturb.warp`, which gives whole grey levels to the bit, this one is for searches that follow slopes: pixels and
places are not rounded. Coordinates are centred: x to the right and y down from the middle, (w - 1) / 2 and (h - 1) / 2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from brinell.perturb.warp import places

_OUTSIDE = 1e6  # pixels from the middle, where there is no image


@dataclass(frozen=True)
class Frames:
    """Images (N, C, H, W); smaller ones lie at the top left and have zeros around them.

    `x` (N or 1, W) and `y` (N or 1, H) are the centred coordinates of the pixels, float64; `inside` (N, 1, H, W) are the
    pixels that an image has, None where all have all.
    """

    images: Tensor
    x: Tensor
    y: Tensor
    inside: Tensor | None = None

    @staticmethod
    def of(images: Tensor, sizes: Tensor | None = None) -> Frames:
        """Frames of images of the given heights and widths (N, 2), or of one size."""
        height, width = images.shape[2:]
        rows, columns = (torch.arange(side, dtype=torch.float64, device=images.device)[None] for side in (height, width))
        if sizes is None or bool((sizes == sizes.new_tensor([height, width])).all()):
            return Frames(images, columns - (width - 1) / 2, rows - (height - 1) / 2)
        tall, wide = sizes.to(images.device, torch.float64).unbind(1)
        inside = ((rows < tall[:, None])[:, :, None] & (columns < wide[:, None])[:, None])[:, None]
        return Frames(images * inside, columns - (wide[:, None] - 1) / 2, rows - (tall[:, None] - 1) / 2, inside)

    def at(self, rows: Tensor | slice) -> Frames:
        """Some of them."""
        shared = len(self.x) == 1
        return replace(
            self,
            images=self.images[rows],
            x=self.x if shared else self.x[rows],
            y=self.y if shared else self.y[rows],
            inside=None if self.inside is None else self.inside[rows],
        )

    def norms(self) -> Tensor:
        """The images' L2 norms (N,)."""
        norms: Tensor = self.images.flatten(1).norm(dim=1)
        return norms

    def moved(self, matrices: Tensor) -> Tensor:
        """The images moved by float64 matrices (N, 3, 3), wherever those are."""
        device, dtype = self.images.device, self.images.dtype
        flat = matrices.device.type == "cpu" and not bool(matrices[:, 2, :2].any())
        matrices = matrices.to(device, non_blocking=True)
        if flat:  # a projective matrix may have any scale
            matrices = matrices / matrices[:, 2:, 2:]
        across = matrices[:, None, :, 0] * self.x[..., None]
        down = matrices[:, None, :, 1] * self.y[..., None] + matrices[:, None, :, 2]
        where = places(across.to(dtype), down.to(dtype), flat=flat, behind=_OUTSIDE)
        height, width = self.images.shape[2:]
        middle = torch.stack([-self.x[:, 0], -self.y[:, 0]], -1).to(dtype)  # in pixels from the corner
        sides = torch.tensor([max(width - 1, 1), max(height - 1, 1)], dtype=dtype).to(device, non_blocking=True)
        grid = (where + middle[:, None, None]) * (2 / sides) - 1
        images: Tensor = grid_sample(self.images, grid, "bilinear", "zeros", align_corners=True)
        return images if self.inside is None else images * self.inside
