"""Fast marching on a grid of coordinates (Manitest): distances from the identity in the images' own metric.

Fronts of many images advance together. A node's distance is the least over the faces of its neighbourhood: from a
neighbour straight on, or from a point between two neighbours that lie beside each other (diagonals are neighbours, too), at
the length that the node's metric gives the way. A front goes on in shells: nodes below a bound are updated until none
changes, and are then final; that needs no order and no heap, so that whole shells are computed at once.
"""

from __future__ import annotations

import itertools
from functools import cache

import torch
from torch import Tensor


@cache
def offsets(dimension: int) -> Tensor:
    """The steps to all neighbours, diagonal ones too, int64 (3^d - 1, d)."""
    steps = itertools.product((-1, 0, 1), repeat=dimension)
    return torch.tensor([step for step in steps if any(step)])


@cache
def faces(dimension: int) -> Tensor:
    """Pairs of neighbours that lie beside each other: the second goes where the first does, and further; int64 (F, 2)."""
    steps = offsets(dimension)
    same = (steps[:, None] == steps) | (steps[:, None] == 0)
    further = same.all(2) & (steps[:, None] != steps).any(2)
    return further.nonzero()


@cache
def _forms(dimension: int) -> tuple[Tensor, Tensor]:
    """What turns a metric's entries (d²) into the squares of all neighbours' steps, and into the products of faces."""
    steps = offsets(dimension).to(torch.float64)
    first, second = faces(dimension).unbind(1)
    squares = steps[:, :, None] * steps[:, None]
    mixed = steps[first][:, :, None] * steps[second][:, None]
    return squares.flatten(1).T.contiguous(), mixed.flatten(1).T.contiguous()


def update_distances(values: Tensor, metrics: Tensor, steps: Tensor, between: bool = True) -> Tensor:
    """The distance (N,) of nodes from their neighbours' (N, K), infinite where unknown, and their metrics (N, d, d).

    `steps` (d,) is the size of the grid's steps. From a point between neighbours e and f, at a share s of the way, the
    distance is u_e + s (u_f - u_e) + |e + s (f - e)|, whose least value has a closed form.
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
    slope = values[:, second] - near  # NaN where neither is known
    root = (own.mul_(length).addcmul_(along, along, value=-1)).clamp_(min=0)
    root.div_(length.addcmul(slope, slope, value=-1)).sqrt_()  # NaN where there is no least value between them
    share = along.addcmul_(slope, root).neg_().div_(length)
    found = near.addcmul_(share, slope).add_(root)
    good = (share > 0) & (share < 1)  # NaN is neither
    return torch.where(good, found, torch.inf).amin(1).minimum(best)


class Fronts:
    """The fronts of `count` images over a grid of (2 half + 1) nodes a coordinate, `steps` apart."""

    def __init__(self, count: int, half: Tensor, steps: Tensor, *, between: bool = True) -> None:
        self.half, self.steps, self.between = half, steps.to(torch.float64), between
        self.sides = 2 * half + 1
        self.strides = torch.cat([self.sides.flip(0).cumprod(0).flip(0)[1:], torch.ones(1, dtype=torch.int64)])
        self.nodes = int(self.sides.prod())
        dimension = len(half)
        self.position = torch.full((count * self.nodes,), -1, dtype=torch.int32)  # of a node in what follows
        self.image = torch.zeros(0, dtype=torch.int64)
        self.index = torch.zeros(0, dtype=torch.int64)  # on the grid
        self.distance = torch.zeros(0, dtype=torch.float64)
        self.metrics = torch.zeros(0, dimension, dimension, dtype=torch.float64)
        self.taken = torch.zeros(0, dtype=torch.bool)
        self.bound = torch.zeros(count, dtype=torch.float64)
        middle = torch.full((count,), int((self.half * self.strides).sum()))
        self._add(torch.arange(count), middle)
        self.distance[:] = 0
        self.fresh = torch.arange(count)  # nodes without a metric yet
        self.changed = torch.arange(count)  # nodes whose neighbours may have to be updated

    def coordinates(self, places: Tensor) -> Tensor:
        """Where nodes lie, float64 (N, d)."""
        return (self._grid(self.index[places]) - self.half) * self.steps

    def _grid(self, index: Tensor) -> Tensor:
        return index[:, None] // self.strides % self.sides

    def _add(self, images: Tensor, index: Tensor) -> Tensor:
        start = len(self.image)
        places = torch.arange(start, start + len(images))
        self.position[images * self.nodes + index] = places.to(torch.int32)
        self.image = torch.cat([self.image, images])
        self.index = torch.cat([self.index, index])
        self.distance = torch.cat([self.distance, torch.full((len(images),), torch.inf, dtype=torch.float64)])
        self.metrics = torch.cat([self.metrics, self.metrics.new_zeros(len(images), *self.metrics.shape[1:])])
        self.taken = torch.cat([self.taken, torch.zeros(len(images), dtype=torch.bool)])
        return places

    def expand(self, alive: Tensor) -> Tensor:
        """Take what changed below the bounds of the images that are `alive`; nodes around it that have to be updated.

        Those of them that are new have no metric yet: `fresh`.
        """
        own = self.image[self.changed]
        near = alive[own] & (self.distance[self.changed] <= self.bound[own])
        source, self.changed = self.changed[near], self.changed[~near]
        around = self._grid(self.index[source])[:, None] + offsets(len(self.half))
        inside = ((around >= 0) & (around < self.sides)).all(2)
        images = self.image[source][:, None].expand_as(inside)[inside]
        keys = torch.unique(images * self.nodes + (around[inside] * self.strides).sum(1))
        places = self.position[keys].to(torch.int64)
        new, old = keys[places < 0], places[places >= 0]
        self.fresh = self._add(new // self.nodes, new % self.nodes)
        return torch.cat([old[~self.taken[old]], self.fresh])  # what was handed out is final

    def propose(self, places: Tensor) -> Tensor:
        """The distances of nodes as their neighbours have it now."""
        around = self._grid(self.index[places])[:, None] + offsets(len(self.half))
        inside = ((around >= 0) & (around < self.sides)).all(2)
        index = (around * self.strides).sum(2).clamp_(0, self.nodes - 1)
        beside = self.position[self.image[places][:, None] * self.nodes + index].to(torch.int64)
        values = torch.where(inside & (beside >= 0), self.distance[beside.clamp_(min=0)], torch.inf)
        return update_distances(values, self.metrics[places], self.steps, self.between)

    def update(self, places: Tensor, found: Tensor) -> None:
        """Take the distances that are lower than what is known."""
        lower = found < self.distance[places] - 1e-12
        self.distance[places[lower]] = found[lower]
        self.changed = torch.unique(torch.cat([self.changed, places[lower]]))

    def at_rest(self, alive: Tensor) -> Tensor:
        """The images (of those alive) whose nodes below the bound are final."""
        busy = torch.zeros_like(alive)
        own = self.image[self.changed]
        busy[own[self.distance[self.changed] <= self.bound[own]]] = True
        return alive & ~busy

    def take_final(self, images: Tensor) -> Tensor:
        """Nodes of images (a mask) that are final and were not handed out before."""
        own = self.image
        places = (images[own] & ~self.taken & (self.distance <= self.bound[own])).nonzero()[:, 0]
        self.taken[places] = True
        return places
