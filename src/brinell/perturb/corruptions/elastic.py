"""Elastic transform of ImageNet-C: a random affine map, then smooth random displacements.

The published lengths are multiples of the side of the image, and so scale with it. Positions are rounded to a fraction of
a pixel, so that interpolation is a sum of whole numbers and every device gets the same result.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import cv2
import numpy as np
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
    field[:, 0].add_(torch.arange(width, device=images.device))
    field[:, 1].add_(torch.arange(height, device=images.device)[:, None])
    return sample(moved, field, _FINE, border="repeat")


def _affine_positions(draws: Draws, jitter: float, images: Tensor) -> Tensor:
    """Return where each pixel comes from when three points move by up to `jitter` pixels, float64 (B, 2, H, W)."""
    height, width = images.shape[2:]
    arm = min(height, width) // 3
    corners = np.array([width // 2, height // 2]) + arm * np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0]])
    moves = (2 * draws.uniform(0, 6).cpu().numpy() - 1).reshape(-1, 3, 2) * jitter
    # rows (x, y, 1); the inverse map takes a pixel to where it comes from
    after = np.concatenate([corners + moves, np.ones((len(moves), 3, 1))], 2)
    back = np.linalg.solve(after, np.broadcast_to(corners, moves.shape)).transpose(0, 2, 1)  # (B, 2, 3)
    x = torch.from_numpy(back[:, :, :1] * np.arange(width)).to(images.device)
    y = torch.from_numpy(back[:, :, 1:2] * np.arange(height) + back[:, :, 2:]).to(images.device)
    return x[:, :, None] + y[..., None]


def _smooth(field: Tensor, sigma: float) -> Tensor:
    """Blur a field (B, 2, H, W) in float64; last bits don't count, since positions are rounded afterwards."""
    height, width = field.shape[2:]
    if field.device.type != "cpu":
        return _smoothing(sigma, height, field.device) @ (field @ _smoothing(sigma, width, field.device).T)
    if int(_TRUNCATE * sigma + 0.5) <= _SHORT:
        return _smooth_by_opencv(field, sigma)
    planes = [_smooth_by_halves(plane, sigma) for plane in field.flatten(0, 1).numpy()]
    return torch.from_numpy(np.stack(planes)).view(field.shape)


def _smooth_by_opencv(field: Tensor, sigma: float) -> Tensor:
    """Blur with few weights."""
    weights = _weights(sigma).numpy()
    made = torch.empty_like(field)
    for plane, target in zip(field.flatten(0, 1).numpy(), made.flatten(0, 1).numpy(), strict=True):
        cv2.sepFilter2D(plane, -1, weights, weights, dst=target, borderType=cv2.BORDER_REFLECT)
    return made


def _smooth_by_halves(plane: np.ndarray, sigma: float) -> np.ndarray:
    """Blur a plane (H, W) with many weights."""
    turned = cv2.transpose(_smooth_rows(plane, sigma))
    made: np.ndarray = cv2.transpose(_smooth_rows(turned, sigma))
    return made


def _smooth_rows(rows: np.ndarray, sigma: float) -> np.ndarray:
    """Blur rows (n, m) with half of the products: what is even or odd about their middle stays so."""
    half, odd_side = divmod(rows.shape[1], 2)
    if odd_side:
        matrix = _smoothing(sigma, rows.shape[1], torch.device("cpu")).numpy()
        return _multiply(rows, np.ascontiguousarray(matrix.T))
    first, last = rows[:, :half], rows[:, half:][:, ::-1]
    evens, odds = _half_smoothing(sigma, rows.shape[1])
    even, odd = _multiply(first + last, evens), _multiply(first - last, odds)
    made = np.empty_like(rows)
    np.add(even, odd, out=made[:, :half])
    np.subtract(even, odd, out=made[:, half:][:, ::-1])
    return made


def _multiply(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Multiply matrices in one thread; those of NumPy take more time to wait for each other than to multiply."""
    product: np.ndarray = cv2.gemm(left, right, 1.0, np.empty(0), 0.0)
    return product


@lru_cache(32)
def _half_smoothing(sigma: float, side: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the products of `_smooth_rows` for what is even and odd, float64 (n / 2, n / 2)."""
    matrix = _smoothing(sigma, side, torch.device("cpu")).numpy()[: side // 2]
    near, far = matrix[:, : side // 2], matrix[:, side // 2 :][:, ::-1]
    return np.ascontiguousarray((near + far).T / 2), np.ascontiguousarray((near - far).T / 2)


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
    axes = positions.mul_(parts).round_().to(torch.float32)  # holds such whole numbers exactly
    for position, side, padded in ((axes[:, 0], width, wide), (axes[:, 1], height, tall)):
        last = (side - 1) * parts
        if border == "black":
            position.clamp_(-2 * parts, last + 2 * parts)
        elif border == "repeat":
            _reflect(position.add_(parts // 2), side * parts).sub_(parts // 2).clamp_(0, last)
        else:
            _reflect(position, last)
        position.mul_(2 / (parts * padded)).add_(1 / padded - 1)
    padded_images = pad(images, (0, wide - width, 0, tall - height))
    made: Tensor = grid_sample(padded_images, axes.permute(0, 2, 3, 1), "bilinear", "zeros", align_corners=False)
    return made


def _reflect(position: Tensor, end: int) -> Tensor:
    """Reflect positions from -3 to 3 times the end into [0, end], in place; those beyond count as at an end."""
    return position.abs_().clamp_(max=3 * end).sub_(end).abs_().neg_().add_(end).abs_()
