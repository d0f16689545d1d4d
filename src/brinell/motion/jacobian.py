"""The Jacobian of a moved image with respect to its motion, the metric it induces, and gradients projected onto motions.

The image gradient is taken by central differences, (I(x + 1) - I(x - 1)) / 2, with zeros outside: a smooth gradient, unlike
the derivative of the bilinear image, which jumps at every pixel. A generator moves a pixel at p = (x, y, 1) by G p, so
column j of the Jacobian is the gradient along the flow of G_j.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import pad

from brinell.motion.frames import Frames
from brinell.motion.groups import Group

_NOTHING = 1e-6  # singular values of the scaled Jacobian below this share of the largest count as 0


def flows(group: Group, frames: Frames) -> Tensor:
    """Return the velocities (d, N or 1, 2, H, W) at which generators move pixels, x before y."""
    return frames.compute_once(f"flows of {group.name}", partial(_flows, group, frames))


def _flows(group: Group, frames: Frames) -> Tensor:
    columns, rows = frames.pixels
    generators = group.generators.to(columns.device)[:, None]
    x, y = torch.broadcast_tensors(columns[:, None, :], rows[:, :, None])  # type: ignore[no-untyped-call]
    velocity = [g[..., 0, None, None] * x + g[..., 1, None, None] * y + g[..., 2, None, None] for g in generators.unbind(2)]
    return torch.stack([velocity[0] - x * velocity[2], velocity[1] - y * velocity[2]], 2).to(frames.images.dtype)


def image_gradient(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the horizontal and the vertical image gradient, (N, C, H, W) each."""
    padded = pad(images, (1, 1, 1, 1))
    across = (padded[..., 1:-1, 2:] - padded[..., 1:-1, :-2]) / 2
    down = (padded[..., 2:, 1:-1] - padded[..., :-2, 1:-1]) / 2
    return across, down


def jacobian(images: Tensor, frames: Frames, flow: Tensor) -> Tensor:
    """Return the columns (N, d, C, H, W) of the Jacobian at moved images (N, C, H, W) of the frames."""
    across, down = image_gradient(images)
    flow = flow.transpose(0, 1)[:, :, :, None]  # (N or 1, d, 2, 1, H, W)
    columns = across[:, None] * flow[:, :, 0]
    columns.addcmul_(down[:, None], flow[:, :, 1])
    return columns if frames.inside is None else columns * frames.inside[:, None]


def numerical_jacobian(frames: Frames, matrices: Tensor, group: Group, step: float = 1e-4, left: bool = False) -> Tensor:
    """Return the Jacobian by finite differences: each image is moved a little further along every generator.

    By default the small motion multiplies the matrix from the right; with `left`, from the left.
    """
    nudges = group.exp(step * torch.eye(group.dimension, dtype=torch.float64))
    still = matrices[:, None]
    ahead = frames.move(nudges @ still if left else still @ nudges)
    return (ahead - frames.move(matrices)[:, None]) / step


def gram(columns: Tensor) -> Tensor:
    """Return the Gram matrices of columns (N, d, …), float64 (N, d, d)."""
    flat = columns.flatten(2)
    return (flat @ flat.mT).to(torch.float64)


def jacobian_gram(images: Tensor, frames: Frames, group: Group, seen: Tensor | None = None) -> Tensor:
    """Return the Gram matrices JᵀJ at moved images, of all pixels or those `seen` (N or 1, 1, H, W), float64 (N, d, d).

    If all images have one size, no columns are computed: squares of the gradient, summed over channels, are weighted by
    products of flows, which all images share.
    """
    size = group.dimension
    if not frames.same_size:
        columns = jacobian(images, frames, flows(group, frames))
        return gram(columns if seen is None else columns * seen[:, None])
    across, down = image_gradient(images)
    squares = torch.stack([(a * b).sum(1) for a, b in ((across, across), (across, down), (down, down))], 1)
    if seen is not None:
        squares = squares * seen
    weights = frames.compute_once(f"weights of {group.name}", partial(_weights, group, frames))
    found: Tensor = (squares.flatten(1) @ weights.T).to(torch.float64).view(-1, size, size)
    return found


def _weights(group: Group, frames: Frames) -> Tensor:
    """Return the weights (d², 3 H W) of the three squares of the gradient at every pixel in the Gram matrix.

    In rows: with columns, the last bits of an image's products would depend on its position in the batch.
    """
    x, y = flows(group, frames)[:, 0].flatten(2).unbind(1)  # (d, H W) each
    parts = [x[:, None] * x, x[:, None] * y + y[:, None] * x, y[:, None] * y]
    return torch.cat([part.flatten(0, 1) for part in parts], 1)


def pullback(images: Tensor, gradient: Tensor, frames: Frames, group: Group) -> Tensor:
    """Return Jᵀg for gradients g (N, C, H, W) at moved images, float64 (N, d)."""
    across, down = image_gradient(images)
    both = torch.stack([(across * gradient).sum(1), (down * gradient).sum(1)], 1)
    flow = flows(group, frames)
    if frames.same_size:
        return (both.flatten(1) @ flow[:, 0].flatten(1).T).to(torch.float64)
    return (flow.transpose(0, 1).flatten(2) @ both.flatten(1)[..., None])[..., 0].to(torch.float64)


def metric(group: Group, coordinates: Tensor, grams: Tensor) -> Tensor:
    """Return the metric (N, d, d) in a group's coordinates (N, d), from the Gram matrices of the Jacobian there."""
    right = group.right_jacobian(coordinates)
    return right.mT @ grams @ right


def solve_normal_equations(grams: Tensor, pullbacks: Tensor) -> Tensor:
    """Return the least-squares solution u (N, d) of J u = g from JᵀJ and Jᵀg, the shortest one if there are many.

    Columns are scaled to unit length first, because a radian changes an image far more than a pixel.
    """
    lengths = grams.diagonal(dim1=1, dim2=2).clamp(min=0).sqrt()
    inverse = torch.where(lengths > _NOTHING * lengths.amax(1, keepdim=True), 1 / lengths, 0).nan_to_num(posinf=0.0)
    scaled = inverse[:, :, None] * grams * inverse[:, None, :]
    found: Tensor = torch.linalg.pinv(scaled, rtol=_NOTHING, hermitian=True) @ (inverse * pullbacks)[..., None]
    return inverse * found[..., 0]


def project_gradient(columns: Tensor, gradient: Tensor) -> Tensor:
    """Return the same solution from the columns (N, d, C, H, W) and the gradient (N, C, H, W), float64."""
    along = (columns.flatten(2) @ gradient.flatten(1)[..., None])[..., 0].to(torch.float64)
    return solve_normal_equations(gram(columns), along)
