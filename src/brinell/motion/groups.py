"""Lie groups of image motions (ManiFool, CVPR 2018): generators, exponential and logarithm.

A motion is a 3×3 matrix M over centred pixel coordinates (x to the right, y down), used as an inverse map: the moved image
shows at p what the image shows at M p. A group is spanned by its generators; coordinates are in raw units, as in the paper:
radians, pixels, the logarithm of the scale. Matrices and coordinates are float64.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from brinell.motion.names import GROUP_FACTS, GroupFacts
from brinell.registry import Registry

_ROOTS = 5  # square roots taken before the series of the logarithm
_ITERATIONS = 12  # maximum per square root; they converge quadratically


def _entries(*entries: tuple[int, int, float]) -> Tensor:
    matrix = torch.zeros(3, 3, dtype=torch.float64)
    for row, column, value in entries:
        matrix[row, column] = value
    return matrix


GENERATORS = {
    "rotation": _entries((0, 1, -1), (1, 0, 1)),
    "x": _entries((0, 2, 1)),
    "y": _entries((1, 2, 1)),
    "scale": _entries((0, 0, 1), (1, 1, 1)),
    "stretch": _entries((0, 0, 1), (1, 1, -1)),
    "shear": _entries((0, 1, 1), (1, 0, 1)),
    # projective motions: the entries of the matrix, row by row, with a trace of 0
    "b11": _entries((0, 0, 1), (2, 2, -1)),
    "b12": _entries((0, 1, 1)),
    "b21": _entries((1, 0, 1)),
    "b22": _entries((1, 1, 1), (2, 2, -1)),
    "b31": _entries((2, 0, 1)),
    "b32": _entries((2, 1, 1)),
}


@dataclass(frozen=True)
class Group(GroupFacts):
    """A group of motions with its generators, float64 (d, 3, 3)."""

    generators: Tensor = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "generators", torch.stack([GENERATORS[part] for part in self.parts]))

    def algebra(self, coordinates: Tensor) -> Tensor:
        """Return the elements (…, 3, 3) of the Lie algebra with coordinates (…, d)."""
        matrices: Tensor = torch.tensordot(coordinates.to(torch.float64), self.generators.to(coordinates.device), dims=1)
        return matrices

    def exp(self, coordinates: Tensor) -> Tensor:
        """Return the motions (…, 3, 3) with coordinates (…, d)."""
        elements = self.algebra(coordinates)
        flat = elements.reshape(-1, 3, 3)
        if len(flat) == 1:  # torch rounds the exponential of one matrix alone differently
            flat = flat.repeat(2, 1, 1)
        matrices: Tensor = torch.linalg.matrix_exp(flat)[: elements.numel() // 9]
        return matrices.view_as(elements)

    def log(self, matrices: Tensor) -> Tensor:
        """Return the coordinates (…, d) of motions (…, 3, 3) within a half turn of the identity."""
        basis = self.generators.to(matrices.device).flatten(1)
        coordinates: Tensor = logarithm(matrices).flatten(-2) @ torch.linalg.pinv(basis)
        return coordinates

    def adjoint(self, coordinates: Tensor) -> Tensor:
        """Return the adjoint matrices (…, d, d): column j has the coordinates of the bracket [B(coordinates), G_j]."""
        basis = self.generators.to(coordinates.device)
        own = self.algebra(coordinates)[..., None, :, :]
        brackets = own @ basis - basis @ own
        columns: Tensor = brackets.flatten(-2) @ torch.linalg.pinv(basis.flatten(1))
        return columns.mT

    def right_jacobian(self, coordinates: Tensor) -> Tensor:
        """Return the right Jacobian J of the exponential, (…, d, d): exp(t + e) = exp(t) exp(J(t) e) for small e.

        It is (1 - exp(-ad)) / ad, computed as a block of the exponential of a block matrix.
        """
        size = self.dimension
        blocks = torch.zeros(*coordinates.shape[:-1], 2 * size, 2 * size, dtype=torch.float64, device=coordinates.device)
        blocks[..., :size, :size] = -self.adjoint(coordinates)
        blocks[..., :size, size:] = torch.eye(size, dtype=torch.float64, device=coordinates.device)
        jacobian: Tensor = torch.linalg.matrix_exp(blocks)[..., :size, size:]
        return jacobian


def half_turns(group: Group, coordinates: Tensor) -> Tensor:
    """Return how many half turns motions with coordinates (B, d) make, (B,): the logarithm inverts the exponential below 1.

    It is the largest imaginary part of an eigenvalue, over pi.
    """
    turns: Tensor = torch.linalg.eigvals(group.algebra(coordinates)).imag.abs().amax(-1) / torch.pi
    return turns


def logarithm(matrices: Tensor) -> Tensor:
    """Return the principal logarithm of matrices (…, n, n): square roots until they are near the identity, then a series.

    Roots use the product form of the Denman-Beavers iteration; log(1 + X) is an integral, evaluated at eight Gauss-Legendre
    nodes (Higham, Functions of Matrices, 6.29 and 11.18).
    """
    one = torch.eye(matrices.shape[-1], dtype=torch.float64, device=matrices.device)
    root = matrices.to(torch.float64)
    for _ in range(_ROOTS):
        root = _square_root(root)
    rest = root - one
    nodes, weights = (values.to(matrices.device) for values in _legendre(8))
    terms = torch.linalg.solve(one + nodes[:, None, None] * rest[..., None, :, :], rest[..., None, :, :])
    found: Tensor = (weights[:, None, None] * terms).sum(-3) * 2.0**_ROOTS
    return found


def _square_root(matrices: Tensor) -> Tensor:
    one = torch.eye(matrices.shape[-1], dtype=torch.float64, device=matrices.device)
    product, root = matrices, matrices
    for _ in range(_ITERATIONS):
        going = ~((product - one).abs() < 1e-15).flatten(-2).all(-1)[..., None, None]
        if not bool(going.any()):
            break
        inverse = torch.linalg.inv_ex(product).inverse
        root = torch.where(going, root @ (one + inverse) / 2, root)  # others don't change while the rest converge
        product = torch.where(going, (one + (product + inverse) / 2) / 2, product)
    return root


def _legendre(count: int) -> tuple[Tensor, Tensor]:
    """Return Gauss-Legendre nodes and weights on [0, 1], by the method of Golub and Welsch."""
    order = torch.arange(1, count, dtype=torch.float64)
    off_diagonal = order / (4 * order**2 - 1).sqrt()
    nodes, vectors = torch.linalg.eigh(torch.diag(off_diagonal, 1) + torch.diag(off_diagonal, -1))
    return (nodes + 1) / 2, vectors[0] ** 2


GROUPS: Registry[Group] = Registry("group")

for _facts in GROUP_FACTS.values():
    GROUPS.add(_facts.name, Group(_facts.name, _facts.title, _facts.short, _facts.parts))
