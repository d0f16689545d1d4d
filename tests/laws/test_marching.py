"""Fast marching compared with SciPy's shortest paths, brute force, and metrics with known distances."""

from __future__ import annotations

import heapq
import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch
from scipy.sparse.csgraph import dijkstra
from torch import Tensor

from brinell.motion.frames import Frames
from brinell.motion.groups import GROUPS, Group
from brinell.motion.jacobian import jacobian_gram, metric
from brinell.motion.marching import Fronts, faces, offsets, update_distances

HALF = {1: [12], 2: [5, 4], 3: [3, 2, 2], 4: [2, 1, 2, 1]}


def metrics(images: int, nodes: int, dimension: int) -> Tensor:
    """Return random metrics, correlated and different at every node."""
    noise = torch.randn(images, nodes, dimension, dimension, generator=torch.Generator().manual_seed(dimension))
    return (noise @ noise.mT + 0.3 * torch.eye(dimension)).to(torch.float64)


def march(own: Tensor, half: Tensor, steps: Tensor, *, between: bool, shell: float) -> Tensor:
    """Return the distances of all nodes, (images, nodes)."""
    fronts = Fronts(len(own), half, steps, between=between)
    alive = torch.ones(len(own), dtype=torch.bool)
    fronts.metrics[fronts.fresh] = own[fronts.image[fronts.fresh], fronts.index[fronts.fresh]]
    taken = 0
    while taken < own.shape[0] * own.shape[1]:
        if bool(fronts.at_rest(alive).all()):
            ready = fronts.take_final(alive)
            assert (fronts.distance[ready] <= fronts.bound[fronts.image[ready]]).all()
            taken += len(ready)
            fronts.bound += shell
            continue
        ready = fronts.expand(alive)
        fronts.metrics[fronts.fresh] = own[fronts.image[fronts.fresh], fronts.index[fronts.fresh]]
        if len(ready):
            fronts.update(ready, fronts.propose(ready))
    found = torch.full(own.shape[:2], torch.nan, dtype=torch.float64)
    found[fronts.image, fronts.index] = fronts.distance
    return found


@pytest.mark.parametrize("shell", [0.3, 5.0])
@pytest.mark.parametrize("dimension", HALF)
def test_distances_from_node_to_node_equal_shortest_paths_of_scipy(dimension: int, shell: float) -> None:
    half = torch.tensor(HALF[dimension])
    sides = (2 * half + 1).tolist()
    steps = torch.tensor([0.5, 0.25, 1.0, 0.1][:dimension], dtype=torch.float64)
    own = metrics(2, math.prod(sides), dimension)
    found = march(own, half, steps, between=False, shell=shell)
    for image, row in zip(own, found, strict=True):
        graph = scipy.sparse.lil_matrix((len(image), len(image)))
        for index, position in enumerate(itertools.product(*map(range, sides))):
            for offset in offsets(dimension).tolist():
                neighbour = tuple(np.add(position, offset))
                if all(0 <= at < side for at, side in zip(neighbour, sides, strict=True)):
                    way = torch.tensor(offset, dtype=torch.float64) * steps
                    graph[np.ravel_multi_index(neighbour, sides), index] = float((way @ image[index] @ way).sqrt())
        expected = dijkstra(graph.tocsr(), indices=len(image) // 2)
        assert np.allclose(row, expected, rtol=1e-9)


def march_with_heap(own: Tensor, sides: list[int], steps: Tensor) -> Tensor:
    """Return the distances of one image's nodes by fast marching with a heap: a node is final when it is the nearest."""
    middle = len(own) // 2
    distance = torch.full((len(own),), torch.inf, dtype=torch.float64)
    final = torch.full((len(own),), torch.inf, dtype=torch.float64)  # distances of final nodes alone
    heap = [(0.0, middle)]
    while heap:
        near, index = heapq.heappop(heap)
        if torch.isfinite(final[index]):
            continue
        distance[index] = final[index] = near
        for node in _neighbours(index, sides):
            if node is not None and torch.isinf(final[node]):
                around = _neighbours(node, sides)
                known = [torch.inf if one is None else float(final[one]) for one in around]
                values = torch.tensor([known], dtype=torch.float64)
                found = float(update_distances(values, own[node][None], steps))
                if found < distance[node]:
                    distance[node] = found
                    heapq.heappush(heap, (found, node))
    return distance


def _neighbours(index: int, sides: list[int]) -> list[int | None]:
    position = np.unravel_index(index, sides)
    found: list[int | None] = []
    for offset in offsets(len(sides)).tolist():
        near = np.add(position, offset)
        inside = bool(((near >= 0) & (near < sides)).all())
        found.append(int(np.ravel_multi_index(tuple(near), sides)) if inside else None)
    return found


def digit_metrics(assets: Path, group: Group, half: Tensor, steps: Tensor) -> Tensor:
    """Return the metrics of three handwritten digits at all nodes of a grid, (3, nodes, d, d)."""
    with np.load(assets / "images" / "mnist_test.npz") as content:
        digits = torch.from_numpy(content["images"][:3]).view(3, 1, 28, 28) / 255
    sides = [torch.arange(-int(reach), int(reach) + 1) * step for reach, step in zip(half, steps, strict=True)]
    coordinates = torch.cartesian_prod(*sides)
    found = []
    for digit in digits:
        frames = Frames.of(digit.expand(len(coordinates), -1, -1, -1))
        found.append(metric(group, coordinates, jacobian_gram(frames.move(group.exp(coordinates)), frames, group)))
    return torch.stack(found)


@pytest.mark.parametrize("dimension", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_distances_across_faces_are_never_larger_than_those_of_a_heap(assets: Path, dimension: int) -> None:
    """A heap makes a node final before all of its faces are known; a shell updates its nodes until none changes."""
    group = GROUPS["translation" if dimension == 2 else "rotation_translation"]
    half = torch.tensor({2: [8, 8], 3: [3, 4, 4]}[dimension])
    sides = (2 * half + 1).tolist()
    steps = torch.tensor([math.pi / 20, 1.0, 1.0][-dimension:], dtype=torch.float64)
    own = digit_metrics(assets, group, half, steps)
    found = march(own, half, steps, between=True, shell=1.0)
    by_heap = torch.stack([march_with_heap(image, sides, steps) for image in own])
    assert (found <= by_heap + 1e-9).all()
    smaller = (found < by_heap - 1e-9).double().mean()
    assert 0 < smaller < 0.3


def _plain_update(values: Tensor, metric: Tensor, steps: Tensor) -> float:
    """Return the minimum distance from any point of any face, over a dense sample of points."""
    ways = offsets(len(steps)).to(torch.float64) * steps
    best = min(float(value + (way @ metric @ way).sqrt()) for value, way in zip(values, ways, strict=True))
    for first, second in faces(len(steps)).tolist():
        for share in np.linspace(0, 1, 201):
            way = ways[first] * (1 - share) + ways[second] * share
            value = values[first] * (1 - share) + values[second] * share
            best = min(best, float(value + (way @ metric @ way).sqrt()))
    return best


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_an_update_is_the_minimum_over_all_points_of_all_faces(dimension: int) -> None:
    generator = torch.Generator().manual_seed(0)
    steps = torch.tensor([0.5, 0.25, 1.0][:dimension], dtype=torch.float64)
    own = metrics(1, 4, dimension)[0]
    values = torch.rand(4, 3**dimension - 1, generator=generator, dtype=torch.float64)
    found = update_distances(values, own, steps)
    for row in range(4):
        assert float(found[row]) == pytest.approx(_plain_update(values[row], own[row], steps), abs=1e-4)


def test_unknown_neighbours_are_ignored() -> None:
    values = torch.full((1, 8), torch.inf, dtype=torch.float64)
    values[0, 1] = 1.0  # the step (-1, 0)
    own = torch.eye(2, dtype=torch.float64)[None]
    assert float(update_distances(values, own, torch.ones(2, dtype=torch.float64))) == pytest.approx(2.0)


@pytest.mark.parametrize(("correlation", "most"), [(0.0, 0.06), (0.8, 0.18)])
@pytest.mark.parametrize("dimension", [2, 3])
def test_distances_in_a_constant_metric_are_straight(dimension: int, correlation: float, most: float) -> None:
    half = torch.full((dimension,), 6)
    metric = (1 - correlation) * torch.eye(dimension) + correlation * torch.ones(dimension, dimension)
    nodes = 13**dimension
    own = metric.to(torch.float64).expand(1, nodes, -1, -1)
    found = march(own, half, torch.ones(dimension, dtype=torch.float64), between=True, shell=0.5)[0]
    position = torch.tensor(list(itertools.product(range(-6, 7), repeat=dimension)), dtype=torch.float64)
    straight = (position[:, None] @ metric.to(torch.float64) @ position[..., None])[:, 0, 0].sqrt()
    excess = (found / straight)[straight > 0] - 1
    assert excess.min() > -1e-9
    assert excess.max() < most
    edges = march(own, half, torch.ones(dimension, dtype=torch.float64), between=False, shell=0.5)[0]
    assert (edges >= found - 1e-9).all()
    assert (edges / straight)[straight > 0].max() - 1 > excess.max()


def test_every_dimension_has_its_number_of_faces() -> None:
    assert [len(faces(dimension)) for dimension in (1, 2, 3, 4)] == [0, 8, 72, 464]
