"""Fast marching on a grid of coordinates (Manitest): distances from the identity in each image's own metric.

The fronts of many images advance together. The distance of a node is the minimum over the faces of its neighbourhood: from
a neighbour (diagonals included) or from a point between two adjacent neighbours, with lengths in the node's metric. A front
advances in shells: nodes below a bound are updated until none changes, and are then final. That needs neither an order nor
a heap, so whole shells are computed at once.
"""

from __future__ import annotations

import itertools
from functools import cache

import torch
from torch import Tensor


@cache
def offsets(dimension: int) -> Tensor:
    """Return the steps to all neighbours, diagonals included, int64 (3^d - 1, d)."""
    steps = itertools.product((-1, 0, 1), repeat=dimension)
    return torch.tensor([step for step in steps if any(step)])


@cache
def faces(dimension: int) -> Tensor:
    """Return pairs of adjacent neighbours, int64 (F, 2): the second goes along the axes of the first and more."""
    steps = offsets(dimension)
    same = (steps[:, None] == steps) | (steps[:, None] == 0)
    further = same.all(2) & (steps[:, None] != steps).any(2)
    return further.nonzero()


@cache
def _forms(dimension: int) -> tuple[Tensor, Tensor]:
    """Return the matrices that map a metric's entries (d²) to squared lengths of all steps, and to products of faces."""
    steps = offsets(dimension).to(torch.float64)
    first, second = faces(dimension).unbind(1)
    squares = steps[:, :, None] * steps[:, None]
    mixed = steps[first][:, :, None] * steps[second][:, None]
    return squares.flatten(1).T.contiguous(), mixed.flatten(1).T.contiguous()


def update_distances(values: Tensor, metrics: Tensor, steps: Tensor, between: bool = True) -> Tensor:
    """Return the distances (N,) of nodes from their metrics (N, d, d) and their neighbours' distances (N, K).

    Unknown distances are infinite; `steps` (d,) are the grid's step sizes. From a point between neighbours e and f, at a
    share s of the way, the distance is u_e + s (u_f - u_e) + |e + s (f - e)|, whose minimum has a closed form. Without
    `between`, paths go from node to node only.
    """
    for_squares, for_faces = _forms(len(steps))
    entries = (metrics * steps[:, None] * steps).flatten(1)
    squares = (entries @ for_squares).clamp_(min=0)
    best = (values + squares.sqrt()).amin(1)
    first, second = faces(len(steps)).unbind(1)
    if not between or not len(first):
        return best
    mixed, own = entries @ for_faces, squares[:, first]
    length = (squares[:, second] + own).sub_(mixed, alpha=2)  # the square of f - e
    along = mixed.sub_(own)  # e · (f - e)
    near = values[:, first]
    slope = values[:, second] - near  # NaN if both are unknown
    root = (own.mul_(length).addcmul_(along, along, value=-1)).clamp_(min=0)
    root.div_(length.addcmul(slope, slope, value=-1)).sqrt_()  # NaN if there is no minimum between them
    share = along.addcmul_(slope, root).neg_().div_(length)
    found = near.addcmul_(share, slope).add_(root)
    inside = (share > 0) & (share < 1)  # False for NaN
    return torch.where(inside, found, torch.inf).amin(1).minimum(best)


class Fronts:
    """The fronts of `count` images on a grid of (2 half + 1) nodes per coordinate, `steps` apart.

    Nodes are stored once a front reaches them; `position` maps (image, grid index) to their position in the lists. Nodes in
    `fresh` have no metric yet; neighbours of nodes in `changed` may need an update; nodes in `taken` are final.
    """

    def __init__(self, count: int, half: Tensor, steps: Tensor, *, between: bool = True) -> None:
        self.half, self.steps, self.between = half, steps.to(torch.float64), between
        self.sides = 2 * half + 1
        self.strides = torch.cat([self.sides.flip(0).cumprod(0).flip(0)[1:], torch.ones(1, dtype=torch.int64)])
        self.size = int(self.sides.prod())
        dimension = len(half)
        self.position = torch.full((count * self.size,), -1, dtype=torch.int32)  # in the lists below; -1: not reached
        self.image = torch.zeros(0, dtype=torch.int64)
        self.index = torch.zeros(0, dtype=torch.int64)  # flat index on the grid
        self.distance = torch.zeros(0, dtype=torch.float64)
        self.metrics = torch.zeros(0, dimension, dimension, dtype=torch.float64)
        self.taken = torch.zeros(0, dtype=torch.bool)
        self.bound = torch.zeros(count, dtype=torch.float64)
        middle = torch.full((count,), int((self.half * self.strides).sum()))
        self._add(torch.arange(count), middle)
        self.distance[:] = 0
        self.fresh = torch.arange(count)
        self.changed = torch.arange(count)

    def coordinates(self, nodes: Tensor) -> Tensor:
        """Return the coordinates of nodes, float64 (N, d)."""
        return (self.grid_positions(self.index[nodes]) - self.half) * self.steps

    def grid_positions(self, index: Tensor) -> Tensor:
        """Return the positions on the grid (N, d) of flat indices."""
        return index[:, None] // self.strides % self.sides

    def _add(self, images: Tensor, index: Tensor) -> Tensor:
        start = len(self.image)
        nodes = torch.arange(start, start + len(images))
        self.position[images * self.size + index] = nodes.to(torch.int32)
        self.image = torch.cat([self.image, images])
        self.index = torch.cat([self.index, index])
        self.distance = torch.cat([self.distance, torch.full((len(images),), torch.inf, dtype=torch.float64)])
        self.metrics = torch.cat([self.metrics, self.metrics.new_zeros(len(images), *self.metrics.shape[1:])])
        self.taken = torch.cat([self.taken, torch.zeros(len(images), dtype=torch.bool)])
        return nodes

    def expand(self, alive: Tensor) -> Tensor:
        """Return the nodes to update: neighbours of nodes that changed below the bounds of the images in `alive` (a mask).

        New ones among them have no metric yet and are listed in `fresh`.
        """
        own = self.image[self.changed]
        near = alive[own] & (self.distance[self.changed] <= self.bound[own])
        source, self.changed = self.changed[near], self.changed[~near]
        around = self.grid_positions(self.index[source])[:, None] + offsets(len(self.half))
        inside = ((around >= 0) & (around < self.sides)).all(2)
        images = self.image[source][:, None].expand_as(inside)[inside]
        keys = torch.unique(images * self.size + (around[inside] * self.strides).sum(1))
        nodes = self.position[keys].to(torch.int64)
        new, old = keys[nodes < 0], nodes[nodes >= 0]
        self.fresh = self._add(new // self.size, new % self.size)
        return torch.cat([old[~self.taken[old]], self.fresh])  # final nodes are not updated

    def propose(self, nodes: Tensor) -> Tensor:
        """Return the distances of nodes from the current distances of their neighbours."""
        around = self.grid_positions(self.index[nodes])[:, None] + offsets(len(self.half))
        inside = ((around >= 0) & (around < self.sides)).all(2)
        index = (around * self.strides).sum(2).clamp_(0, self.size - 1)
        neighbours = self.position[self.image[nodes][:, None] * self.size + index].to(torch.int64)
        values = torch.where(inside & (neighbours >= 0), self.distance[neighbours.clamp_(min=0)], torch.inf)
        return update_distances(values, self.metrics[nodes], self.steps, self.between)

    def update(self, nodes: Tensor, found: Tensor) -> None:
        """Store the distances that are lower than the known ones."""
        lower = found < self.distance[nodes] - 1e-12
        self.distance[nodes[lower]] = found[lower]
        self.changed = torch.unique(torch.cat([self.changed, nodes[lower]]))

    def at_rest(self, alive: Tensor) -> Tensor:
        """Return the images of `alive` whose nodes below the bound no longer change (masks)."""
        busy = torch.zeros_like(alive)
        own = self.image[self.changed]
        busy[own[self.distance[self.changed] <= self.bound[own]]] = True
        return alive & ~busy

    def take_final(self, images: Tensor) -> Tensor:
        """Return the nodes of images (a mask) that are newly final, and mark them as taken."""
        own = self.image
        nodes = (images[own] & ~self.taken & (self.distance <= self.bound[own])).nonzero()[:, 0]
        self.taken[nodes] = True
        return nodes
