"""How an image changes as it begins to move: the columns of the Jacobian, the metric, directions by projection.

The image gradient is taken by central differences, (I(x + 1) - I(x - 1)) / 2, with zeros outside: a smooth gradient, not
the derivative of the bilinear image, which jumps at every pixel. A generator moves a pixel at p = (x, y, 1) by G p, so
that column j is the gradient's share along the flow of G_j.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from brinell.geometry.frames import Frames
from brinell.geometry.groups import Group

_NOTHING = 1e-6  # singular values of the normalised Jacobian below this (relative to the largest) count as 0


def flows(group: Group, frames: Frames) -> Tensor:
    """The velocities (d, N or 1, 2, H, W) at which generators move pixels, x first."""
    generators = group.generators.to(frames.x.device)[:, None]
    x, y = torch.broadcast_tensors(frames.x[:, None, :], frames.y[:, :, None])  # type: ignore[no-untyped-call]
    velocity = [g[..., 0, None, None] * x + g[..., 1, None, None] * y + g[..., 2, None, None] for g in generators.unbind(2)]
    return torch.stack([velocity[0] - x * velocity[2], velocity[1] - y * velocity[2]], 2).to(frames.images.dtype)


def jacobian(images: Tensor, frames: Frames, flow: Tensor) -> Tensor:
    """The columns (N, d, C, H, W) of moved images (N, C, H, W) of the frames, as they stand."""
    across = (pad(images, (0, 1))[..., 1:] - pad(images, (1, 0))[..., :-1]) / 2
    down = (pad(images, (0, 0, 0, 1))[..., 1:, :] - pad(images, (0, 0, 1, 0))[..., :-1, :]) / 2
    flow = flow.transpose(0, 1)[:, :, :, None]  # (N or 1, d, 2, 1, H, W)
    columns = across[:, None] * flow[:, :, 0]
    columns.addcmul_(down[:, None], flow[:, :, 1])
    return columns if frames.inside is None else columns * frames.inside[:, None]


def numerical_jacobian(frames: Frames, matrices: Tensor, group: Group, step: float = 1e-4) -> Tensor:
    """The same by differences: each image is moved on a little along every generator, and interpolated again."""
    still = frames.moved(matrices)
    ahead = [frames.moved(matrices @ nudge) for nudge in group.exp(step * torch.eye(group.dimension, dtype=torch.float64))]
    return torch.stack([(moved - still) / step for moved in ahead], 1)


def gram(columns: Tensor) -> Tensor:
    """The products of columns (N, d, …) with each other, float64 (N, d, d)."""
    flat = columns.flatten(2)
    return (flat @ flat.mT).to(torch.float64)


def metric(group: Group, coordinates: Tensor, products: Tensor) -> Tensor:
    """The metric (N, d, d) in a group's coordinates (N, d), from the products of an image's columns there."""
    drift = group.drift(coordinates)
    return drift.mT @ products @ drift


def projected(columns: Tensor, gradient: Tensor) -> Tensor:
    """The least-squares solution u (N, d) of J u = gradient (N, C, H, W), the smallest where there are many; float64.

    Columns are scaled to one length first: a radian changes an image by far more than a pixel does.
    """
    slopes = (columns.flatten(2) @ gradient.flatten(1)[..., None])[..., 0].to(torch.float64)
    products = gram(columns)
    lengths = products.diagonal(dim1=1, dim2=2).clamp(min=0).sqrt()
    inverse = torch.where(lengths > _NOTHING * lengths.amax(1, keepdim=True), 1 / lengths, 0).nan_to_num(posinf=0.0)
    scaled = inverse[:, :, None] * products * inverse[:, None, :]
    solved: Tensor = torch.linalg.pinv(scaled, rtol=_NOTHING, hermitian=True) @ (inverse * slopes)[..., None]
    return inverse * solved[..., 0]
