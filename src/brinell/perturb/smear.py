"""A lens out of focus, or a camera that moved while it looked (seed 3).

A blur along an axis is a product with a matrix (n, n) an image: any strength costs the same, and the border is folded in.
Matrices and grey levels are whole numbers, and their sums stay below 2²⁴, so that a product is exact in float32 and the
same for every batch and device.
"""

from __future__ import annotations

import torch
from torch import Tensor

from brinell.perturb.property import PropertyFacts, per_image, pixels

_NEARLY = 1e-9  # so that 29/50 of 50 pixels is 29 pixels and not 28.999…
_FIRST, _SECOND = 16, 12  # bits of the weights of the two passes of a Gaussian blur
_SIGMA = 0.2  # of the longer side, at severity 1
_TRUNCATE = 4  # standard deviations after which a Gaussian is cut off


def _kernel(severities: Tensor, height: int, width: int) -> Tensor:
    """The length of the line in pixels."""
    return (severities[:, 0] * min(height, width) + _NEARLY).floor().clamp(min=1)


_MOTION = PropertyFacts("motion blur", "blur", "px", _kernel, points=lambda height, width: min(height, width, 224))


@pixels("motion_blur", _MOTION)
def motion_blur(images: Tensor, severities: Tensor) -> Tensor:
    """A horizontal line of k pixels; border reflect-101.

    The authors' k×k kernel has its line in row round((k-1)/2), which for k = 2, 6, 10 … is not the row of OpenCV's anchor,
    k//2: such a blur also moves the image down by one pixel.
    """
    height, width = images.shape[2:]
    length = _kernel(severities, height, width)
    lower = torch.cat([images[..., 1:2, :], images[..., :-1, :]], -2)
    images = torch.where(per_image(length % 4 == 2, images) > 0, lower, images)
    sums = _product(images.flatten(1, 2), _line(length, width, images.device).mT).view(images.shape)
    return sums.div_(per_image(length, images))


@pixels("motion_blur", _MOTION, semantics="equations")
def motion_blur_as_written(images: Tensor, severities: Tensor) -> Tensor:
    """Eq. 4: a vertical line of k pixels, from k//2 above to the rest below; border reflect-101."""
    height, width = images.shape[2:]
    length = _kernel(severities, height, width)
    return _product(_line(length, height, images.device)[:, None], images).div_(per_image(length, images))


def _line(length: Tensor, side: int, device: torch.device) -> Tensor:
    """How often each pixel is counted in the sum of `length` (B,) neighbours from length//2 before it on, (B, n, n)."""
    reach = side // 2
    offsets = torch.arange(-reach, reach + 1)
    first = -(length // 2)[:, None]
    return _folded((offsets >= first) & (offsets < first + length[:, None]), side, device, edge_twice=False)


def _sigma(severities: Tensor, height: int, width: int) -> Tensor:
    return _SIGMA * severities[:, 0] * max(height, width)


@pixels("gaussian_blur", PropertyFacts("Gaussian blur", "blur", "sigma", _sigma))
def gaussian_blur(images: Tensor, severities: Tensor) -> Tensor:
    """Eq. 5: a standard deviation of up to a fifth of the longer side, cut off at four of them; border reflected.

    Weights have 16 bits along rows and 12 along columns, and 4 bits behind the point are kept in between: 0.02 grey levels
    or so from real numbers.
    """
    height, width = images.shape[2:]
    sigma = _sigma(severities, height, width)
    reach = int(_TRUNCATE * _SIGMA * max(height, width) + 0.5)
    along = _folded(_bell(sigma, reach, _FIRST), width, images.device, edge_twice=True)
    down = _folded(_bell(sigma, reach, _SECOND), height, images.device, edge_twice=True)
    rows = _product(images.flatten(1, 2), along.mT).mul_(2.0**-_SECOND).round_().view(images.shape)
    return _product(down[:, None], rows).mul_(2.0**-_FIRST)


def _bell(sigma: Tensor, reach: int, bits: int) -> Tensor:
    """Whole weights of a Gaussian at offsets -reach … reach that sum to 2**bits, (B, 2·reach+1).

    What is rounded is their sum from outside on, so that errors don't add up.
    """
    offset = torch.arange(reach + 1, dtype=torch.float64)
    spread = sigma.clamp(min=1e-6)[:, None]
    density = (-0.5 * (offset / spread) ** 2).exp() * (offset <= (_TRUNCATE * sigma[:, None] + 0.5).floor())
    tails = density.flip(1).cumsum(1).flip(1)
    tails = (tails * (2.0**bits / (2 * tails[:, :1] - density[:, :1]))).round()
    side = tails[:, 1:] - torch.nn.functional.pad(tails[:, 2:], (0, 1))
    middle = 2.0**bits - 2 * tails[:, 1:2]
    return torch.cat([side.flip(1), middle, side], 1)


def _folded(weights: Tensor, side: int, device: torch.device, *, edge_twice: bool) -> Tensor:
    """Weights (B, 2·reach+1) of a pixel's neighbours as a matrix (B, n, n) whose rows are targets.

    What lies outside is reflected at the border as often as needed, with the pixel at the edge seen twice or once.
    """
    reach = weights.shape[1] // 2
    period = 2 * side if edge_twice else 2 * side - 2
    circle = torch.zeros(len(weights), period, dtype=torch.float32)
    circle.index_add_(1, torch.arange(-reach, reach + 1) % period, weights.to(torch.float32))
    step = torch.arange(2 * side - 1)
    # sources at target + step, and mirrored ones, along both diagonals
    straight = circle[:, (step - side + 1) % period].to(device).unfold(1, side, 1).flip(1)
    mirrored = circle[:, (period - edge_twice - step) % period].to(device).unfold(1, side, 1)
    if edge_twice:
        return straight.add_(mirrored)
    straight[:, :, 1:-1] += mirrored[:, :, 1:-1]
    return straight


def _product(left: Tensor, right: Tensor) -> Tensor:
    """A matrix product of whole numbers, exact. An accelerator may be told to cut float32 short, but not float64."""
    if left.device.type == "cpu":
        return left @ right
    return (left.to(torch.float64) @ right.to(torch.float64)).to(torch.float32)
