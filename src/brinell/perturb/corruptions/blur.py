"""Blurs of ImageNet-C that are the same everywhere in an image: Gaussian, out of focus, and zoomed."""

from __future__ import annotations

import math
from functools import lru_cache

import cv2
import numpy as np
import torch
from torch import Tensor

from brinell.perturb.corruptions.fields import turn, zoom_positions
from brinell.perturb.corruptions.severity import EXTRA, Constants, Corruption, Row, corruption
from brinell.perturb.corruptions.shifts import MOST, add_many, add_shifted, cut
from brinell.perturb.smear import exact_product, gaussian_weights

_FIRST, _SECOND = 16, 12  # bits of the weights in the two passes of a Gaussian blur, as in `smear`
_FINE = 22  # bits of the weights in both passes of a blur in float64, which holds 8 + 2·22 bits exactly
_BLOCK = 32  # rows or columns computed at once on a CPU, where the weights reach few others
_SHORT = 24  # reach of a blur whose weights OpenCV sums up faster than a product of matrices does, and exactly (`shifts`)
_PARTS = 256  # of a pixel that enlargements are rounded to
_BITS = 16  # bits of the sum of the weights of a disc


@corruption(
    "gaussian_blur",
    Corruption(
        "Gaussian blur",
        "blur",
        Constants([(1.0,), (2.0,), (3.0,), (4.0,), (6.0,)], [(0.4,), (0.6,), (0.7,), (0.8,), (1.0,)], (0.0,)),
        family=EXTRA,
    ),
)
def gaussian_blur(images: Tensor, constants: Row) -> Tensor:
    """Blur with a Gaussian, truncated at 4 sigma (border repeated)."""
    return blur(images, constants[0])


def blur(images: Tensor, sigma: float) -> Tensor:
    """Blur images of whole grey levels with a Gaussian; sums of whole numbers, so every device gets the same result."""
    height, width = images.shape[2:]
    reach = int(4 * sigma + 0.5)
    if reach == 0:
        return images
    if images.device.type == "cpu" and reach <= _SHORT:
        return _blur_by_opencv(images, sigma)
    across = _multiply(images.flatten(0, 2), _matrix(sigma, _FIRST, width, images.device), sigma, across=True)
    rows = across.mul_(2.0**-_SECOND).round_().view(images.shape)
    return _multiply(rows, _matrix(sigma, _SECOND, height, images.device), sigma, across=False).mul_(2.0**-_FIRST)


def _blur_by_opencv(images: Tensor, sigma: float) -> Tensor:
    """Blur as products with a matrix do, for few weights."""
    first, second = (_weights(sigma, bits).astype(np.float32) for bits in (_FIRST, _SECOND))
    made = torch.empty_like(images, memory_format=torch.contiguous_format)
    for plane, target in zip(images.flatten(0, 1), made.flatten(0, 1), strict=True):
        across = cv2.filter2D(plane.numpy(), -1, first[None] * 2.0**-_SECOND, borderType=cv2.BORDER_REPLICATE)
        rows = torch.from_numpy(across).round_().numpy()
        cv2.filter2D(rows, -1, second[:, None] * 2.0**-_FIRST, dst=target.numpy(), borderType=cv2.BORDER_REPLICATE)
    return made


def floor_blur(images: Tensor, sigma: float) -> Tensor:
    """Blur images of whole grey levels, and cut off to whole levels, where a small error counts as much as a large one."""
    if int(4 * sigma + 0.5) == 0:
        return images
    return (_floor_by_opencv if images.device.type == "cpu" else _floor_in_tensors)(images, sigma)


def _floor_by_opencv(images: Tensor, sigma: float) -> Tensor:
    weights = _weights(sigma, _FINE) * 2.0**-_FINE
    made = torch.empty_like(images, memory_format=torch.contiguous_format)
    for plane, target in zip(images.flatten(0, 1).numpy(), made.flatten(0, 1).numpy(), strict=True):
        sums = cv2.sepFilter2D(plane, cv2.CV_64F, weights, weights, borderType=cv2.BORDER_REPLICATE)
        np.floor(sums, out=target, casting="same_kind")
    return made


def _floor_in_tensors(images: Tensor, sigma: float) -> Tensor:
    down, across = (_matrix(sigma, _FINE, side, images.device).to(torch.float64) for side in images.shape[2:])
    sums: Tensor = down @ (images.to(torch.float64) @ across.T)
    return sums.mul_(4.0**-_FINE).floor_().to(torch.float32)


@lru_cache(64)
def _weights(sigma: float, bits: int) -> np.ndarray:
    weights: np.ndarray = gaussian_weights(torch.tensor([sigma], dtype=torch.float64), bits)[0].numpy()
    return weights


@lru_cache(64)
def _matrix(sigma: float, bits: int, side: int, device: torch.device) -> Tensor:
    """Return whole weights (n, n) of the pixels along an axis, one row per target; the border is repeated outside."""
    weights = torch.from_numpy(_weights(sigma, bits))
    reach = len(weights) // 2
    source = (torch.arange(side)[:, None] + torch.arange(-reach, reach + 1)).clamp(0, side - 1)
    matrix = torch.zeros(side, side, dtype=torch.float64).scatter_add_(1, source, weights.expand(side, -1))
    return matrix.to(torch.float32).to(device)


def _multiply(images: Tensor, matrix: Tensor, sigma: float, *, across: bool) -> Tensor:
    """Apply a blur along the last axis or along the one before; on a CPU only to pixels that it reaches."""
    side, reach = len(matrix), int(4 * sigma + 0.5)
    size = _BLOCK if reach < side // 3 and images.device.type == "cpu" else side
    parts = []
    for start in range(0, side, size):
        low, high = max(0, start - reach), min(side, start + size + reach)
        block = matrix[start : start + size, low:high]
        parts.append(
            exact_product(images[:, low:high], block.T) if across else exact_product(block, images[:, :, low:high])
        )
    return parts[0] if len(parts) == 1 else torch.cat(parts, -1 if across else -2)


@corruption(
    "defocus_blur",
    Corruption(
        "defocus blur",
        "blur",
        Constants(
            [(3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)],
            [(0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)],
            (0, 0.1),
        ),
    ),
)
def defocus_blur(images: Tensor, constants: Row) -> Tensor:
    """Average over a disc with a soft edge, as a lens out of focus does (border reflect-101).

    On a CPU few pixels are summed up one by one, and many by Fourier transforms. Elsewhere a row of the disc is a sum of
    boxes around its middle, and sums over boxes are differences of cumulative sums.
    """
    unit = _disc(*constants)[2]
    return (_add_on_host if images.device.type == "cpu" else _add_boxes)(images, *constants).mul_(unit)


def _add_boxes(images: Tensor, radius: float, softness: float) -> Tensor:
    """Return sums over a disc around each pixel."""
    boxes, reach, _ = _disc(radius, softness)
    height, width = images.shape[2:]
    rows, columns = (_reflected(side, reach, images.device) for side in (height, width))
    sums = images.index_select(2, rows).index_select(3, columns).cumsum(3)
    sums = torch.nn.functional.pad(sums, (1, 0))
    made, spare = torch.zeros_like(images), torch.empty_like(images)
    for down, parts in boxes:
        pair = sums[:, :, reach + down : reach + down + height]
        if down:
            pair = pair + sums[:, :, reach - down : reach - down + height]
        for half, weight in parts:
            first = reach - half
            torch.sub(pair[..., first + 2 * half + 1 :][..., :width], pair[..., first : first + width], out=spare)
            made.add_(spare, alpha=weight)  # exact: whole numbers below 2**24
    return made


@lru_cache(64)
def _disc(radius: float, softness: float) -> tuple[list[tuple[int, list[tuple[int, float]]]], int, float]:
    """Return a disc as boxes, by their row: half of their length and their weight, a whole number; its reach; and the unit
    of weights.

    The published disc is drawn on a grid that ends at the radius (at 8 pixels for smaller ones) and is softened on that
    grid, so that a large disc is a little heavier at the border of the grid.
    """
    end = 8 if radius <= 8 else math.ceil(radius)
    side = np.arange(-end, end + 1)
    disc = (side[:, None] ** 2 + side**2 <= radius**2).astype(np.float32)
    size = (3, 3) if radius <= 8 else (5, 5)
    kernel = cv2.GaussianBlur(disc / disc.sum(), size, sigmaX=softness)
    quarter = kernel.astype(np.float64)[end:, end:]
    middle = np.floor((1 << _BITS) * quarter[0, 0] / kernel.sum())  # whole, as it counts most
    whole = np.rint(quarter * (middle / quarter[0, 0]))
    boxes = []
    for down, row in enumerate(whole):
        steps = row - np.append(row[1:], 0)
        parts = [(half, float(weight)) for half, weight in enumerate(steps) if weight]
        if parts:
            boxes.append((down, parts))
    reach = max(max(down, *(half for half, _ in parts)) for down, parts in boxes)
    return boxes, reach, float(quarter[0, 0] / middle)


def _add_on_host(images: Tensor, radius: float, softness: float) -> Tensor:
    """Return the same on a CPU."""
    weights = _disc_weights(radius, softness)
    made = torch.empty_like(images, memory_format=torch.contiguous_format)
    planes, targets = images.flatten(0, 1), made.flatten(0, 1)
    if weights.size > MOST:
        add_many(planes, weights, cv2.BORDER_REFLECT_101, targets)
    else:
        reach = len(weights) // 2
        add_shifted(planes, list(cut(weights, (-reach, -reach))), cv2.BORDER_REFLECT_101, targets)
    return made


@lru_cache(64)
def _disc_weights(radius: float, softness: float) -> np.ndarray:
    """Return the weights of a disc, float32 (2·reach + 1, 2·reach + 1)."""
    boxes, reach, _ = _disc(radius, softness)
    weights = np.zeros((2 * reach + 1, 2 * reach + 1), np.float32)
    for down, parts in boxes:
        for half, weight in parts:
            for row in {reach - down, reach + down}:
                weights[row, reach - half : reach + half + 1] += weight
    return weights


@lru_cache(64)
def _reflected(side: int, reach: int, device: torch.device) -> Tensor:
    """Return the pixels of an axis with a border that is reflected as often as needed, without repeating the edge."""
    turn = torch.arange(-reach, side + reach) % (2 * side - 2)
    return torch.minimum(turn, 2 * side - 2 - turn).to(device)


@corruption(
    "zoom_blur",
    Corruption(
        "zoom blur",
        "blur",
        Constants(
            [(1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)],
            [(1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)],
            (1.01, 0.01),
        ),
    ),
)
def zoom_blur(images: Tensor, constants: Row) -> Tensor:
    """Average the image and its enlargements, as a lens does that zooms during the exposure.

    Weights are rounded to 8 bits, so that float32 holds every interpolated value exactly.
    """
    end, step = constants
    factors = np.arange(1, end, step)  # the published list, rounding errors of its length included
    planes = images.flatten(0, 1)
    total = (_zoom_one_by_one if images.device.type == "cpu" else _zoom_together)(planes, factors[1:].tolist())
    # twice: the image itself, and the enlargement by 1; by a tensor, as CUDA multiplies by the inverse of a number
    return images.mul_(2).add_(total.view(images.shape)).div_(images.new_full((), len(factors) + 1))


def _zoom_together(planes: Tensor, factors: list[float]) -> Tensor:
    """Return the sum of the enlargements of planes (n, H, W)."""
    total = planes.new_zeros(len(planes), planes.shape[2], planes.shape[1])
    for factor in factors:
        rows, columns = (zoom_positions(side, factor, planes.device, _PARTS) for side in planes.shape[1:])
        total.add_(_stretch(turn(_stretch(planes, *rows)), *columns))
    return turn(total)


def _stretch(planes: Tensor, near: Tensor, far: Tensor, weight: Tensor) -> Tensor:
    """Enlarge the centre of planes (n, H, W) along columns, by linear interpolation."""
    return planes.index_select(1, near).lerp_(planes.index_select(1, far), weight)


def _zoom_one_by_one(planes: Tensor, factors: list[float]) -> Tensor:
    """Return the same on a CPU, in as little memory as possible, which a core's cache holds."""
    height, width = planes.shape[1:]
    total = torch.zeros(len(planes), width, height)
    upright = torch.empty(2, height, width)
    lying, turned = upright.view(2, width, height), torch.empty(width, height)
    for plane, sums in zip(planes, total, strict=True):
        for factor in factors:
            rows, columns = (zoom_positions(side, factor, planes.device, _PARTS) for side in (height, width))
            cv2.transpose(_stretch_into(upright, plane, *rows).numpy(), dst=turned.numpy())
            sums.add_(_stretch_into(lying, turned, *columns))
    return turn(total)


def _stretch_into(pair: Tensor, plane: Tensor, near: Tensor, far: Tensor, weight: Tensor) -> Tensor:
    made, spare = pair[0], pair[1]
    torch.index_select(plane, 0, near, out=made)
    torch.index_select(plane, 0, far, out=spare)
    return made.lerp_(spare, weight)
