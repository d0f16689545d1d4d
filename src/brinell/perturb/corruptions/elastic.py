"""Elastic transform of ImageNet-C: a random affine map, then smooth random displacements.

The published lengths are multiples of the side of the image, and so scale with it. Positions are rounded to a fraction of
a pixel, so that interpolation is a sum of whole numbers and every device gets the same result.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import cv2
import torch
from torch import Tensor
from torch.nn.functional import grid_sample, pad

from brinell.draws import Draws
from brinell.perturb.corruptions.fields import halves
from brinell.perturb.corruptions.severity import Constants, Corruption, Row, corruption, published_side

_COARSE, _FINE = 32, 128  # parts of a pixel that positions are rounded to: as OpenCV does, and in the second step
_BETWEEN = 4  # parts of a grey level between the two steps
_SHORT = 8  # reach of a blur whose weights OpenCV sums up faster than a product of matrices does
_TRUNCATE = 3  # a Gaussian ends after this many standard deviations


@corruption(
    "elastic_transform",
    Corruption(
        "elastic transform",
        "spatial",
        Constants(
            # 244 is the published factor, for images of 224×224 pixels
            [
                (244 * 2, 244 * 0.7, 244 * 0.1),
                (244 * 2, 244 * 0.08, 244 * 0.2),
                (244 * 0.05, 244 * 0.01, 244 * 0.02),
                (244 * 0.07, 244 * 0.01, 244 * 0.02),
                (244 * 0.12, 244 * 0.01, 244 * 0.02),
            ],
            [
                (0, 0, 32 * 0.08),
                (32 * 0.05, 32 * 0.2, 32 * 0.07),
                (32 * 0.08, 32 * 0.06, 32 * 0.06),
                (32 * 0.1, 32 * 0.04, 32 * 0.05),
                (32 * 0.1, 32 * 0.03, 32 * 0.03),
            ],
            (0, 244 * 0.7, 0),
            (0, 0, 0),
        ),
    ),
)
def elastic_transform(images: Tensor, constants: Row, draws: Draws) -> Tensor:
    """Move three points at random and the image with them, then every pixel by a smooth random field (border reflected)."""
    height, width = images.shape[2:]
    scale = min(height, width) / published_side(height, width)
    strength, sigma, jitter = (scale * value for value in constants)
    moved = sample(images, _affine_positions(draws, jitter, images), _COARSE, border="reflect")
    moved.mul_(_BETWEEN).round_().div_(_BETWEEN)
    if strength == 0:
        return moved
    shape = torch.Size([len(images), 2, height, width])
    field = halves(draws, 1, shape).to(torch.float64).add_(0.5).mul_(strength * 2.0**-15)
    if sigma > 0:
        field = _smooth(field, sigma)
    place = torch.stack(torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")[::-1])
    return sample(moved, field.add_(place.to(images.device)), _FINE, border="repeat")


def _affine_positions(draws: Draws, jitter: float, images: Tensor) -> Tensor:
    """Return where each pixel comes from when three points move by up to `jitter` pixels, float64 (B, 2, H, W)."""
    height, width = images.shape[2:]
    centre = torch.tensor([width // 2, height // 2], dtype=torch.float64)
    arm = min(height, width) // 3
    corners = centre + arm * torch.tensor([[1, 1], [1, -1], [-1, -1]], dtype=torch.float64)
    moves = (2 * draws.uniform(0, 6).cpu() - 1).view(-1, 3, 2) * jitter
    # rows (x, y, 1); the inverse map takes a pixel to where it comes from
    after = torch.cat([corners + moves, torch.ones(len(moves), 3, 1, dtype=torch.float64)], 2)
    back: Tensor = torch.linalg.solve(after, corners.expand(len(moves), 3, 2)).mT  # (B, 2, 3)
    x = (back[:, :, :1] * torch.arange(width)).to(images.device)
    y = (back[:, :, 1:2] * torch.arange(height) + back[:, :, 2:]).to(images.device)
    return x[:, :, None] + y[..., None]


def _smooth(field: Tensor, sigma: float) -> Tensor:
    """Blur a field (B, 2, H, W) in float64; last bits don't count, since positions are rounded afterwards."""
    height, width = field.shape[2:]
    if field.device.type != "cpu":
        return _smoothing(sigma, height, field.device) @ (field @ _smoothing(sigma, width, field.device).T)
    if int(_TRUNCATE * sigma + 0.5) <= _SHORT:
        return _smooth_by_opencv(field, sigma)
    return _smooth_by_halves(_smooth_by_halves(field, sigma, -1), sigma, -2)


def _smooth_by_opencv(field: Tensor, sigma: float) -> Tensor:
    """Blur with few weights."""
    weights = _weights(sigma).numpy()
    made = torch.empty_like(field)
    for plane, target in zip(field.flatten(0, 1).numpy(), made.flatten(0, 1).numpy(), strict=True):
        cv2.sepFilter2D(plane, -1, weights, weights, dst=target, borderType=cv2.BORDER_REFLECT)
    return made


def _smooth_by_halves(field: Tensor, sigma: float, axis: int) -> Tensor:
    """Blur along one axis with half of the products: what is even or odd about the middle of the field stays so."""
    side = field.shape[axis]
    matrix = _smoothing(sigma, side, field.device)
    if side % 2:
        return field @ matrix.T if axis == -1 else matrix @ field
    first, last = field.chunk(2, axis)
    near, far = matrix[: side // 2].chunk(2, 1)
    last, far = last.flip(axis), far.flip(1)
    parts = (((first + last) / 2, near + far), ((first - last) / 2, near - far))
    even, odd = (part @ weights.T if axis == -1 else weights @ part for part, weights in parts)
    return torch.cat([even + odd, (even - odd).flip(axis)], axis)


@lru_cache(32)
def _smoothing(sigma: float, side: int, device: torch.device) -> Tensor:
    """Return a Gaussian blur along an axis as a matrix, float64 (n, n); the border is reflected, the edge repeated."""
    weights = _weights(sigma)
    reach = len(weights) // 2
    turn = (torch.arange(side)[:, None] + torch.arange(-reach, reach + 1)) % (2 * side)
    source = torch.minimum(turn, 2 * side - 1 - turn)
    matrix = torch.zeros(side, side, dtype=torch.float64).scatter_add_(1, source, weights.expand(side, -1))
    return matrix.to(device)


@lru_cache(32)
def _weights(sigma: float) -> Tensor:
    """Return the weights of a Gaussian, float64 (2·reach + 1,)."""
    reach = int(_TRUNCATE * sigma + 0.5)
    weights = (-0.5 * (torch.arange(-reach, reach + 1) / sigma).to(torch.float64) ** 2).exp()
    return weights / weights.sum()


def sample(images: Tensor, positions: Tensor, parts: int, *, border: Literal["reflect", "repeat", "black"]) -> Tensor:
    """Interpolate images linearly at positions (B, 2, H, W), x before y, rounded to parts of a pixel; they are overwritten.

    Positions outside are reflected at the centre of the border's pixels, or at their edge, which repeats them, or black.
    """
    height, width = images.shape[2:]
    tall, wide = (1 << (side - 1).bit_length() for side in (height, width))  # grid_sample divides exactly by these
    found = positions.mul_(parts).round_().to(torch.int32)
    for position, side in ((found[:, 0], width), (found[:, 1], height)):
        last = (side - 1) * parts
        if border == "black":
            position.clamp_(-2 * parts, last + 2 * parts)
        elif border == "repeat":
            _reflect(position.add_(parts // 2), side * parts).sub_(parts // 2).clamp_(0, last)
        else:
            _reflect(position, last)
    axes = found.to(torch.float32)
    for axis, padded in ((axes[:, 0], wide), (axes[:, 1], tall)):
        axis.mul_(2 / (parts * padded)).add_(1 / padded - 1)
    padded_images = pad(images, (0, wide - width, 0, tall - height))
    made: Tensor = grid_sample(padded_images, axes.permute(0, 2, 3, 1), "bilinear", "zeros", align_corners=False)
    return made


def _reflect(position: Tensor, end: int) -> Tensor:
    """Reflect positions from -3 to 3 times the end into [0, end], in place; those beyond count as at an end."""
    return position.abs_().clamp_(max=3 * end).sub_(end).abs_().neg_().add_(end).abs_()
