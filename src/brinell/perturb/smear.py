"""A lens out of focus, or a camera that moved while it looked (seed 3).

A blur along an axis is a product with a matrix (n, n) an image, in which the border is folded in. Matrices and grey levels
are whole numbers, and their sums stay below 2²⁴, so that a product is exact in float32 and the same for every batch and
device.
"""

from __future__ import annotations

import torch
from torch import Tensor

from brinell.perturb.papers import ZHONG_2020
from brinell.perturb.property import NEARLY, PropertyFacts, per_image, pixel_property

_FIRST, _SECOND = 16, 12  # bits of the weights of the two passes of a Gaussian blur
_SIGMA = 0.2  # of the longer side, at severity 1
_TRUNCATE = 4  # standard deviations after which a Gaussian is cut off
_BLOCK = 32  # rows or columns that are made at once, from those in reach, unless nearly all are


def _kernel(severities: Tensor, height: int, width: int) -> Tensor:
    """The length of the line in pixels."""
    return (severities[:, 0] * min(height, width) + NEARLY).floor().clamp(min=1)


_MOTION = PropertyFacts(
    "motion blur", "blur", "px", _kernel, points=lambda height, width: min(height, width, 224), source=ZHONG_2020
)


@pixel_property("motion_blur", _MOTION)
def motion_blur(images: Tensor, severities: Tensor) -> Tensor:
    """A horizontal line of k pixels; border reflect-101.

    The authors' k×k kernel has its line in row round((k-1)/2), which for k = 2, 6, 10 … is not the row of OpenCV's anchor,
    k//2: such a blur also moves the image down by one pixel.
    """
    length = _kernel(severities, *images.shape[2:])
    moved = (length % 4 == 2).nonzero()[:, 0].to(images.device)
    images[moved] = torch.cat([images[moved, :, 1:2], images[moved, :, :-1]], 2)
    return _line_mean(images, length, -1)


@pixel_property("motion_blur", _MOTION, variant="equations")
def motion_blur_as_written(images: Tensor, severities: Tensor) -> Tensor:
    """Eq. 4: a vertical line of k pixels, from k//2 above to the rest below; border reflect-101."""
    return _line_mean(images, _kernel(severities, *images.shape[2:]), -2)


def _line_mean(images: Tensor, length: Tensor, axis: int) -> Tensor:
    """The mean of `length` (B,) pixels along an axis, from length//2 before each pixel on."""
    reach = int(length.max()) // 2
    offsets = torch.arange(-reach, reach + 1)
    first = -(length // 2)[:, None]
    counted = (offsets >= first) & (offsets < first + length[:, None])
    return _spread(images, counted, axis, edge_twice=False).div_(per_image(length, images))


def _sigma(severities: Tensor, height: int, width: int) -> Tensor:
    return _SIGMA * severities[:, 0] * max(height, width)


@pixel_property("gaussian_blur", PropertyFacts("Gaussian blur", "blur", "sigma", _sigma, source=ZHONG_2020))
def gaussian_blur(images: Tensor, severities: Tensor) -> Tensor:
    """Eq. 5: a standard deviation of up to a fifth of the longer side, cut off at four of them; border reflected.

    Weights have 16 bits along rows and 12 along columns, and 4 bits behind the point are kept in between: 0.02 grey levels
    or so from real numbers.
    """
    sigma = _sigma(severities, *images.shape[2:])
    rows = _spread(images, _bell(sigma, _FIRST), -1, edge_twice=True).mul_(2.0**-_SECOND).round_()
    return _spread(rows, _bell(sigma, _SECOND), -2, edge_twice=True).mul_(2.0**-_FIRST)


def _bell(sigma: Tensor, bits: int) -> Tensor:
    """Whole weights of Gaussians at offsets -reach … reach that sum to 2**bits, (B, 2·reach+1).

    What is rounded is their sum from outside on, so that errors don't add up.
    """
    end = (_TRUNCATE * sigma + 0.5).floor()[:, None]
    offset = torch.arange(max(1, int(end.max())) + 1, dtype=torch.float64)
    density = (-0.5 * (offset / sigma.clamp(min=1e-6)[:, None]) ** 2).exp() * (offset <= end)
    tails = density.flip(1).cumsum(1).flip(1)
    tails = (tails * (2.0**bits / (2 * tails[:, :1] - density[:, :1]))).round()
    side = tails[:, 1:] - torch.nn.functional.pad(tails[:, 2:], (0, 1))
    middle = 2.0**bits - 2 * tails[:, 1:2]
    return torch.cat([side.flip(1), middle, side], 1)


def _spread(images: Tensor, weights: Tensor, axis: int, *, edge_twice: bool) -> Tensor:
    """Sums of a pixel's neighbours along an axis, with weights (B, 2·reach+1)."""
    side, reach = images.shape[axis], weights.shape[1] // 2
    matrix = _folded(weights.to(images.device, torch.float32), side, edge_twice)
    # an accelerator is faster with one large product
    size = _BLOCK if reach < side // 3 and images.device.type == "cpu" else side
    parts = []
    for start in range(0, side, size):
        low, high = max(0, start - reach), min(side, start + size + reach)
        seen, block = images.narrow(axis, low, high - low), matrix[:, start : start + size, low:high]
        if axis == -1:
            parts.append(_product(seen.flatten(1, 2), block.mT).view(*images.shape[:3], -1))
        else:
            parts.append(_product(block[:, None], seen))
    return parts[0] if len(parts) == 1 else torch.cat(parts, axis)


def _folded(weights: Tensor, side: int, edge_twice: bool) -> Tensor:
    """Weights (B, 2·reach+1) of a pixel's neighbours as a matrix (B, n, n) whose rows are targets.

    What lies outside is reflected at the border as often as needed, with the pixel at the edge seen twice or once.
    """
    reach = weights.shape[1] // 2
    period = 2 * side if edge_twice else 2 * side - 2
    circle = weights.new_zeros(len(weights), period)
    circle.index_add_(1, torch.arange(-reach, reach + 1, device=weights.device) % period, weights)
    step = torch.arange(2 * side - 1, device=weights.device)
    # sources at target + step, and mirrored ones, along both diagonals
    matrix = circle[:, (step - side + 1) % period].unfold(1, side, 1).flip(1)
    mirrored = circle[:, (period - edge_twice - step) % period].unfold(1, side, 1)
    edge = 0 if edge_twice else 1
    matrix[:, :, edge : side - edge] += mirrored[:, :, edge : side - edge]
    return matrix


def _product(left: Tensor, right: Tensor) -> Tensor:
    """A matrix product of whole numbers, exact. An accelerator may be told to cut float32 short, but not float64."""
    if left.device.type == "cpu":
        return left @ right
    return (left.to(torch.float64) @ right.to(torch.float64)).to(torch.float32)
