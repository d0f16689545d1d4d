"""Motion blur and Gaussian blur (DSN 2020, Zhong, Hu and Chen).

A blur along an axis is a product with one matrix (n, n) per image, which includes the reflected border. Matrices and grey
levels are whole numbers with sums below 2²⁴, so products are exact in float32 and the same for every batch and device.
Where there are Triton kernels, they are products of bytes. On a CPU, OpenCV averages along lines and sums up few weights.
"""

from __future__ import annotations

import cv2
import numpy as np
import torch
from torch import Tensor

from brinell.kernels import kernels_for
from brinell.perturb.levels import per_image
from brinell.perturb.papers import ZHONG_2020
from brinell.perturb.property import NEARLY, PropertyFacts, pixel_property
from brinell.resizing.resample import to_device

_FIRST, _SECOND = 16, 12  # bits of the weights in the two passes of a Gaussian blur
_SIGMA = 0.2  # of the longer side, at severity 1
_TRUNCATE = 4  # a Gaussian ends after this many standard deviations
_SHORT = 32  # reach up to which OpenCV sums up weights faster than a product with a matrix on a CPU
_BLOCK = 32  # rows or columns computed at once on a CPU, where the weights reach few others


def _length(severities: Tensor, height: int, width: int) -> Tensor:
    """Return the length of the line in pixels."""
    return (severities[:, 0] * min(height, width) + NEARLY).floor().clamp(min=1)


_MOTION = PropertyFacts(
    "motion blur", "blur", "px", _length, points=lambda height, width: min(height, width, 224), source=ZHONG_2020
)


@pixel_property("motion_blur", _MOTION)
def motion_blur(images: Tensor, severities: Tensor) -> Tensor:
    """Average along a horizontal line of k pixels (border reflect-101).

    The authors' k×k kernel has its line in row round((k-1)/2), which for k = 2, 6, 10 … differs from the row of OpenCV's
    anchor, k//2: such a blur also shifts the image down by one pixel.
    """
    length = _length(severities, *images.shape[2:])
    shifted = to_device((length % 4 == 2).nonzero()[:, 0], images.device)
    images[shifted] = torch.cat([images[shifted, :, 1:2], images[shifted, :, :-1]], 2)
    return _line_mean(images, length, -1)


@pixel_property("motion_blur", _MOTION, variant="standard")
def horizontal_motion_blur(images: Tensor, severities: Tensor) -> Tensor:
    """Average along a horizontal line of k pixels, k//2 of them to the left (border reflect-101)."""
    return _line_mean(images, _length(severities, *images.shape[2:]), -1)


@pixel_property("motion_blur", _MOTION, variant="equations")
def motion_blur_as_written(images: Tensor, severities: Tensor) -> Tensor:
    """Average along a vertical line of k pixels, k//2 of them above (border reflect-101, Eq. 4)."""
    return _line_mean(images, _length(severities, *images.shape[2:]), -2)


def _line_mean(images: Tensor, length: Tensor, axis: int) -> Tensor:
    """Return the mean of `length` (B,) pixels along an axis, starting length//2 before each pixel."""
    if kernels_for("smear", images) is None and images.device.type == "cpu":
        return _line_sums_by_opencv(images, length, axis).div_(per_image(length, images))
    reach = int(length.max()) // 2
    offsets = torch.arange(-reach, reach + 1)
    first = -(length // 2)[:, None]
    weights = (offsets >= first) & (offsets < first + length[:, None])
    return _weighted_sums(images, weights, axis, edge_twice=False).div_(per_image(length, images))


def _line_sums_by_opencv(images: Tensor, length: Tensor, axis: int) -> Tensor:
    made = torch.empty_like(images, memory_format=torch.contiguous_format)
    for planes, targets, pixels in zip(images.numpy(), made.numpy(), length.int().tolist(), strict=True):
        size, anchor = ((pixels, 1), (pixels // 2, 0)) if axis == -1 else ((1, pixels), (0, pixels // 2))
        for plane, target in zip(planes, targets, strict=True):
            cv2.boxFilter(plane, -1, size, target, anchor, normalize=False, borderType=cv2.BORDER_REFLECT_101)
    return made


def _sigma(severities: Tensor, height: int, width: int) -> Tensor:
    return _SIGMA * severities[:, 0] * max(height, width)


@pixel_property("gaussian_blur", PropertyFacts("Gaussian blur", "blur", "sigma", _sigma, source=ZHONG_2020))
def gaussian_blur(images: Tensor, severities: Tensor) -> Tensor:
    """Blur with a Gaussian of up to a fifth of the longer side, truncated at 4 sigma (border reflected, Eq. 5).

    Weights have 16 bits along rows and 12 along columns, with 4 fractional bits in between, which is within about 0.02
    grey levels of the exact result.
    """
    tails = _tails(_sigma(severities, *images.shape[2:]))
    rows = _weighted_sums(images, _whole_weights(*tails, _FIRST), -1, edge_twice=True, unit=2.0**-_SECOND).round_()
    columns = _whole_weights(*tails, _SECOND)
    return _weighted_sums(rows, columns, -2, edge_twice=True, unit=2.0**-_FIRST, depth=8 + _FIRST - _SECOND)


def gaussian_weights(sigma: Tensor, bits: int) -> Tensor:
    """Return integer Gaussian weights at offsets -reach … reach that sum to 2**bits, (B, 2·reach+1).

    Cumulative sums from outside are rounded, so that rounding errors don't add up.
    """
    return _whole_weights(*_tails(sigma), bits)


def _tails(sigma: Tensor) -> tuple[Tensor, Tensor]:
    """Return cumulative sums of Gaussians from offset reach to 0, (B, reach+1), and the sum of all weights, (B, 1)."""
    end = (_TRUNCATE * sigma + 0.5).floor()[:, None]
    offset = torch.arange(max(1, int(end.max())), -1, -1, dtype=torch.float64)
    density = (offset / sigma.clamp(min=1e-6)[:, None]).square_().mul_(-0.5).exp_().mul_(offset <= end)
    tails = density.cumsum(1)
    return tails, 2 * tails[:, -1:] - density[:, -1:]


def _whole_weights(tails: Tensor, total: Tensor, bits: int) -> Tensor:
    tails = (tails * (2.0**bits / total)).round_()
    side = torch.cat([tails[:, :1], tails[:, 1:-1] - tails[:, :-2]], 1)
    middle = 2.0**bits - 2 * tails[:, -2:-1]
    return torch.cat([side, middle, side.flip(1)], 1)


def _weighted_sums(
    images: Tensor, weights: Tensor, axis: int, *, edge_twice: bool, unit: float = 1.0, depth: int = 8
) -> Tensor:
    """Return sums of each pixel's neighbours along an axis, times a power of two.

    Weights, on the host, are whole numbers (B, 2·reach+1); images are whole numbers of `depth` bits, with sums below 2²⁴.
    """
    side, reach = images.shape[axis], weights.shape[1] // 2
    kernels = kernels_for("smear", images)
    if kernels is not None:
        circle = _circle(to_device(weights.to(torch.int32), images.device), side, edge_twice)
        # a pixel's weight is a sum over both of its mirror images and over turns of the circle
        most = 2 * int(weights.max()) * -(-weights.shape[1] // circle.shape[1])
        sums: Tensor = kernels.weighted_sums(images, circle, axis, reach=reach, bits=(depth, most.bit_length()), unit=unit)
        return sums
    if images.device.type == "cpu" and reach <= _SHORT:
        return _sums_by_opencv(images, weights * unit, axis, edge_twice)
    matrix = _fold_border(weights.to(images.device, torch.float32), side, edge_twice)
    # one large product is faster on an accelerator
    size = _BLOCK if reach < side // 3 and images.device.type == "cpu" else side
    parts = []
    for start in range(0, side, size):
        low, high = max(0, start - reach), min(side, start + size + reach)
        source, block = images.narrow(axis, low, high - low), matrix[:, start : start + size, low:high]
        if axis == -1:
            parts.append(exact_product(source.flatten(1, 2), block.mT).view(*images.shape[:3], -1))
        else:
            parts.append(exact_product(block[:, None], source))
    found = parts[0] if len(parts) == 1 else torch.cat(parts, axis)
    return found if unit == 1 else found.mul_(unit)


def _sums_by_opencv(images: Tensor, weights: Tensor, axis: int, edge_twice: bool) -> Tensor:
    border = cv2.BORDER_REFLECT if edge_twice else cv2.BORDER_REFLECT_101
    made = torch.empty_like(images, memory_format=torch.contiguous_format)
    one = np.ones(1, np.float32)
    for planes, targets, own in zip(images.numpy(), made.numpy(), weights.to(torch.float32).numpy(), strict=True):
        across, down = (own, one) if axis == -1 else (one, own)
        for plane, target in zip(planes, targets, strict=True):
            cv2.sepFilter2D(plane, -1, across, down, dst=target, borderType=border)
    return made


def _circle(weights: Tensor, side: int, edge_twice: bool) -> Tensor:
    """Return weights of offsets modulo the period of a reflected axis, (B, period)."""
    reach = weights.shape[1] // 2
    period = 2 * side if edge_twice else 2 * side - 2
    circle = weights.new_zeros(len(weights), period)
    return circle.index_add_(1, torch.arange(-reach, reach + 1, device=weights.device) % period, weights)


def _fold_border(weights: Tensor, side: int, edge_twice: bool) -> Tensor:
    """Return weights (B, 2·reach+1) of a pixel's neighbours as matrices (B, n, n) with one row per target pixel.

    Pixels outside are reflected at the border as often as needed; the pixel at the edge is repeated if `edge_twice`.
    """
    circle = _circle(weights, side, edge_twice)
    period = circle.shape[1]
    step = torch.arange(2 * side - 1, device=weights.device)
    # direct sources lie along one diagonal, mirrored ones along the other
    matrix = circle[:, (step - side + 1) % period].unfold(1, side, 1).flip(1)
    mirrored = circle[:, (period - edge_twice - step) % period].unfold(1, side, 1)
    edge = 0 if edge_twice else 1
    matrix[:, :, edge : side - edge] += mirrored[:, :, edge : side - edge]
    return matrix


def exact_product(left: Tensor, right: Tensor) -> Tensor:
    """Multiply matrices of whole numbers exactly: in float64 on accelerators, which may shorten float32 (TF32)."""
    if left.device.type == "cpu":
        return left @ right
    return (left.to(torch.float64) @ right.to(torch.float64)).to(torch.float32)
