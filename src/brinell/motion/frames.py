"""Images that move: whole, in the model's scale, on the model's device. Bilinear, zeros outside, one interpolation.

Unlike `perturb.warp`, which gives whole grey levels to the bit, this one is for searches that follow slopes: pixels and
places are not rounded. Coordinates are centred: x to the right and y down from the middle, (w - 1) / 2 and (h - 1) / 2.
Motions are computed on the host, images where they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

_OUTSIDE = 4.0  # halves of a side from the middle, where there is no image


class Pixels(NamedTuple):
    """Where pixels lie: the centred x (N or 1, W) and y (N or 1, H) of columns and rows, float64."""

    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Frames:
    """Images (N, C, H, W); smaller ones lie at the top left and have zeros around them.

    `pixels` are theirs, one row where all images have one size; `corners` (N or 1, 2) are the first pixels' x and y, on the
    host; `inside` (N, 1, H, W) are the pixels that an image has, None where all have all.
    """

    images: Tensor
    pixels: Pixels
    corners: Tensor
    inside: Tensor | None = None
    cached: dict[str, Tensor] = field(default_factory=dict, repr=False, compare=False)

    @staticmethod
    def of(images: Tensor, sizes: Tensor | None = None) -> Frames:
        """Frames of images of the given heights and widths (N, 2), or of one size."""
        height, width = images.shape[2:]
        full = torch.tensor([[height, width]])
        one = sizes is None or bool((sizes == full).all())
        sizes = full if one or sizes is None else sizes
        corners = (1 - sizes.to(torch.float64).flip(1)) / 2
        rows, columns = (torch.arange(side, dtype=torch.float64) for side in (height, width))
        x, y = columns + corners[:, :1], rows + corners[:, 1:]
        pixels = Pixels(x.to(images.device), y.to(images.device))
        if one:
            return Frames(images, pixels, corners)
        inside = ((y <= -corners[:, 1:])[:, :, None] & (x <= -corners[:, :1])[:, None])[:, None].to(images.device)
        return Frames(images * inside, pixels, corners, inside)

    @property
    def same_size(self) -> bool:
        """Whether all have one size."""
        return self.inside is None

    def select(self, rows: Tensor) -> Frames:
        """Some of them, by their numbers, which are on the host."""
        there = rows.to(self.images.device, non_blocking=True)
        if self.inside is None:
            return replace(self, images=self.images[there])
        pixels = Pixels(self.pixels.x[there], self.pixels.y[there])
        return Frames(self.images[there], pixels, self.corners[rows], self.inside[there])

    def norms(self) -> Tensor:
        """The images' L2 norms (N,)."""
        norms: Tensor = self.images.flatten(1).norm(dim=1)
        return norms

    def compute_once(self, name: str, make: Callable[[], Tensor]) -> Tensor:
        """Something about pixels that are alike for all images, made once for all parts of the frames."""
        if not self.same_size:
            return make()
        if name not in self.cached:
            made = make()
            if made.device.type == "cuda":
                torch.cuda.current_stream(made.device).synchronize()  # other streams may use it from now on
            self.cached[name] = made
        return self.cached[name]

    def move(self, matrices: Tensor, seen: Pixels | None = None) -> Tensor:
        """The images (N, C, H, W) moved by float64 matrices (N, 3, 3) of the host, or (N, K, C, H, W) by (N, K, 3, 3).

        Of the moved images all pixels are made, or those that are `seen`.
        """
        several = matrices.ndim == 4
        ways = matrices if several else matrices[:, None]
        grid = self._grid(ways, seen or self.pixels)
        count, many, height, width, _ = grid.shape
        flat = grid.view(count, many * height, width, 2)
        found = grid_sample(self.images, flat, "bilinear", "zeros", align_corners=True)
        found = found.view(count, -1, many, height, width)
        images = found.transpose(1, 2) if several else found[:, :, 0]
        if self.inside is None or seen is not None:
            return images
        return images * (self.inside[:, None] if several else self.inside)

    def _grid(self, ways: Tensor, seen: Pixels) -> Tensor:
        """Where pixels come from (N, K, H, W, 2), -1 to 1 from the middle of the first pixel to that of the last.

        Column and row add up to it: one sum for each pixel, and no matrix product.
        """
        device, dtype = self.images.device, self.images.dtype
        sides = torch.tensor([max(side - 1, 1) for side in reversed(self.images.shape[2:])], dtype=torch.float64)
        depth = ways[..., 2:, :]
        rows = (ways[..., :2, :] - self.corners[:, None, :, None] * depth) * (2 / sides)[:, None] - depth
        flat = not bool(depth[..., :2].any())
        if flat:  # a projective matrix may have any scale
            rows = rows / depth[..., 2:]
        rows = rows.to(dtype).to(device, non_blocking=True)
        x, y = (side[:, None].to(dtype) for side in seen)
        grid = torch.empty(*ways.shape[:2], y.shape[-1], x.shape[-1], 2, dtype=dtype, device=device)
        for place in range(2):
            _sums(rows[..., place, :], x, y, out=grid[..., place])
        if flat:
            return grid
        far = torch.empty(grid.shape[:-1], dtype=dtype, device=device)
        _sums(depth[..., 0, :].to(dtype).to(device, non_blocking=True), x, y, out=far)
        return torch.where(far[..., None] > 0, grid / far[..., None], _OUTSIDE)  # what is behind the camera is not seen


def _sums(coefficients: Tensor, x: Tensor, y: Tensor, *, out: Tensor) -> None:
    """What x and y, weighted, and a constant add up to at all pixels, for coefficients (N, K, 3)."""
    a, b, c = (coefficients[..., place, None] for place in range(3))
    torch.add((a * x)[..., None, :], (b * y + c)[..., :, None], out=out)
