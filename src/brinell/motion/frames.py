"""Images under motions, for searches: bilinear interpolation once, zeros outside, in the model's scale and on its device.

`perturb.warp` gives whole grey levels, equal to the bit everywhere. Searches follow slopes, so here neither pixels nor
positions are rounded. Coordinates are centred: x to the right and y down from ((w - 1) / 2, (h - 1) / 2). Motions are
computed on the host, images on their device, by a kernel where there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from brinell.kernels import kernels_for

_OUTSIDE = 4.0  # in half sides from the centre: outside any image


class Pixels(NamedTuple):
    """Centred positions of pixels: x of columns (N or 1, W) and y of rows (N or 1, H), float64."""

    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Frames:
    """A batch of images (N, C, H, W); smaller ones are at the top left and padded with zeros.

    `pixels` are the positions of their pixels, in one row if all images have one size; `corners` (N or 1, 2) are x and y
    of their first pixels, on the host; `inside` (N, 1, H, W) masks the pixels of each image, None if all have one size.
    """

    images: Tensor
    pixels: Pixels
    corners: Tensor
    inside: Tensor | None = None
    cached: dict[str, Tensor] = field(default_factory=dict, repr=False, compare=False)

    @staticmethod
    def of(images: Tensor, sizes: Tensor | None = None) -> Frames:
        """Return the frames of images with the given heights and widths (N, 2); by default all have one size."""
        height, width = images.shape[2:]
        full = torch.tensor([[height, width]])
        same = sizes is None or bool((sizes == full).all())
        sizes = full if same or sizes is None else sizes
        corners = (1 - sizes.to(torch.float64).flip(1)) / 2
        rows, columns = (torch.arange(side, dtype=torch.float64) for side in (height, width))
        x, y = columns + corners[:, :1], rows + corners[:, 1:]
        pixels = Pixels(x.to(images.device), y.to(images.device))
        if same:
            return Frames(images, pixels, corners)
        inside = ((y <= -corners[:, 1:])[:, :, None] & (x <= -corners[:, :1])[:, None])[:, None].to(images.device)
        return Frames(images * inside, pixels, corners, inside)

    @property
    def same_size(self) -> bool:
        """Whether all images have one size."""
        return self.inside is None

    def select(self, rows: Tensor) -> Frames:
        """Return the frames of some images, by their indices on the host."""
        index = rows.to(self.images.device, non_blocking=True)
        if self.inside is None:
            return replace(self, images=self.images[index])
        pixels = Pixels(self.pixels.x[index], self.pixels.y[index])
        return Frames(self.images[index], pixels, self.corners[rows], self.inside[index])

    def norms(self) -> Tensor:
        """Return the L2 norms of the images, (N,)."""
        norms: Tensor = self.images.flatten(1).norm(dim=1)
        return norms

    def compute_once(self, name: str, make: Callable[[], Tensor]) -> Tensor:
        """Return what `make` computes from pixel positions, computed once if all images have one size."""
        if not self.same_size:
            return make()
        if name not in self.cached:
            made = make()
            if made.device.type == "cuda":
                torch.cuda.current_stream(made.device).synchronize()  # because other streams may read it
            self.cached[name] = made
        return self.cached[name]

    def move(self, matrices: Tensor, seen: Pixels | None = None, rows: Tensor | None = None) -> Tensor:
        """Return images (N, C, H, W) moved by float64 matrices (N, 3, 3) on the host, or (N, K, C, H, W) by (N, K, 3, 3).

        By default all pixels of the moved images are computed; with `seen`, only those. With `rows`, indices on the host,
        only these images are moved.
        """
        kernels = kernels_for("frames", self.images) if self.images.dtype == torch.float32 else None
        if kernels is not None:
            return self._move_by(kernels, matrices, seen, rows)
        if rows is not None:
            return self.select(rows).move(matrices, seen)
        several = matrices.ndim == 4
        motions = matrices if several else matrices[:, None]
        grid = self._grid(motions, seen or self.pixels)
        count, many, height, width, _ = grid.shape
        flat = grid.view(count, many * height, width, 2)
        found = grid_sample(self.images, flat, "bilinear", "zeros", align_corners=True)
        found = found.view(count, -1, many, height, width)
        images = found.transpose(1, 2) if several else found[:, :, 0]
        if self.inside is None or seen is not None:
            return images
        return images * (self.inside[:, None] if several else self.inside)

    def _move_by(self, kernels: ModuleType, matrices: Tensor, seen: Pixels | None, rows: Tensor | None) -> Tensor:
        """Return the same by kernels, for which no image is copied."""
        device, shape = self.images.device, matrices.shape[:-2]
        rows = torch.arange(len(self.images)) if rows is None else rows
        corners = self.corners.expand(len(rows), -1) if self.same_size else self.corners[rows]
        x, y = self.pixels if seen is None else seen
        if seen is None and not self.same_size:
            index = rows.to(device, non_blocking=True)
            x, y = x[index], y[index]
        many = matrices[0].numel() // 9 if len(matrices) else 1
        rows, corners = rows.repeat_interleave(many), corners.repeat_interleave(many, 0)
        x, y = (side.repeat_interleave(many if len(side) > 1 else 1, 0).to(torch.float32) for side in (x, y))
        wide, tall = (1 - 2 * corners).unbind(1)
        places = torch.stack([rows, tall, wide], 1).to(torch.int32)
        motions, perspective = sources(matrices.reshape(-1, 3, 3), corners)
        moved: Tensor = kernels.move_images(
            self.images,
            motions.to(torch.float32).flatten(1).to(device, non_blocking=True),
            places.to(device, non_blocking=True),
            x,
            y,
            clipped=seen is None,
            perspective=perspective,
        )
        return moved.view(*shape, *moved.shape[1:])

    def _grid(self, motions: Tensor, seen: Pixels) -> Tensor:
        """Return source positions (N, K, H, W, 2), from -1 at the centre of the first pixel to 1 at that of the last.

        A position is the sum of a column's and a row's contribution; no matrix product is needed.
        """
        device, dtype = self.images.device, self.images.dtype
        sides = torch.tensor([max(side - 1, 1) for side in reversed(self.images.shape[2:])], dtype=torch.float64)
        depth = motions[..., 2:, :]
        rows = (motions[..., :2, :] - self.corners[:, None, :, None] * depth) * (2 / sides)[:, None] - depth
        affine = (depth[..., :2] == 0).all(-1, keepdim=True)
        scale = torch.where(affine, depth[..., 2:], 1.0)  # per matrix: what an image gets must not depend on the others
        rows, depth = rows / scale, depth / scale
        rows = rows.to(dtype).to(device, non_blocking=True)
        x, y = (side[:, None].to(dtype) for side in seen)
        grid = torch.empty(*motions.shape[:2], y.shape[-1], x.shape[-1], 2, dtype=dtype, device=device)
        for axis in range(2):
            _affine_sums(rows[..., axis, :], x, y, out=grid[..., axis])
        if bool(affine.all()):  # division by 1 is skipped
            return grid
        far = torch.empty(grid.shape[:-1], dtype=dtype, device=device)
        _affine_sums(depth[..., 0, :].to(dtype).to(device, non_blocking=True), x, y, out=far)
        return torch.where(far[..., None] > 0, grid / far[..., None], _OUTSIDE)  # pixels behind the camera are not seen


def sources(matrices: Tensor, corners: Tensor) -> tuple[Tensor, bool]:
    """Return matrices (N, 3, 3) from a pixel's centred position to its source's column and row; and whether one divides.

    `corners` (N, 2) are the centred positions of first pixels. The last row is the divisor; where it is constant, it is 1:
    what an image gets must not depend on the others.
    """
    depth = matrices[:, 2:]
    affine = (depth[..., :2] == 0).all(-1, keepdim=True)
    found = torch.cat([matrices[:, :2] - corners[:, :, None] * depth, depth], 1)
    return found / torch.where(affine, depth[..., 2:], 1.0), not bool(affine.all())


def _affine_sums(coefficients: Tensor, x: Tensor, y: Tensor, *, out: Tensor) -> None:
    """Compute a·x + b·y + c at all pixels, for coefficients (N, K, 3)."""
    a, b, c = (coefficients[..., index, None] for index in range(3))
    torch.add((a * x)[..., None, :], (b * y + c)[..., :, None], out=out)
