"""ManiFool against a plain one: one image, one target and one length at a time, with SciPy's exponential and logarithm."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.linalg
import torch
from scipy.ndimage import map_coordinates

from brinell.motion.groups import GROUPS, Group
from test_geometry_lens import SIDE, Random, bench, searched, shapes

MIDDLE = (SIDE - 1) / 2
LENGTHS = np.geomspace(0.01, 0.5, 10)


def moved(image: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """By SciPy, which interpolates as we do: linear, zeros outside."""
    y, x = np.mgrid[:SIDE, :SIDE] - MIDDLE
    places = matrix[:2, :2] @ np.stack([x.ravel(), y.ravel()]) + matrix[:2, 2:]
    wide = np.pad(image, 1)  # what lies less than a pixel outside is in between
    return map_coordinates(wide, places[::-1] + MIDDLE + 1, order=1, cval=0.0).reshape(SIDE, SIDE)


def algebra(group: Group, way: np.ndarray) -> np.ndarray:
    return np.tensordot(way, group.generators.numpy(), 1)


def coordinates(group: Group, matrix: np.ndarray) -> np.ndarray:
    basis = group.generators.numpy().reshape(group.dimension, -1)
    return np.linalg.lstsq(basis.T, scipy.linalg.logm(matrix).real.ravel(), rcond=None)[0]


def columns(group: Group, image: np.ndarray) -> np.ndarray:
    """The Jacobian (pixels, d), by the central differences of the image."""
    wide = np.pad(image, 1)
    across, down = (wide[1:-1, 2:] - wide[1:-1, :-2]) / 2, (wide[2:, 1:-1] - wide[:-2, 1:-1]) / 2
    y, x = np.mgrid[:SIDE, :SIDE] - MIDDLE
    flow = group.generators.numpy() @ np.stack([x.ravel(), y.ravel(), np.ones(SIDE**2)])
    return (across.ravel() * flow[:, 0] + down.ravel() * flow[:, 1]).T


def length(group: Group, image: np.ndarray, motion: np.ndarray) -> float:
    """The direct path's, in steps of 0.05, over the norm."""
    whole = np.linalg.norm(motion)
    stops = [*np.arange(0, whole, 0.05), whole]
    path = [moved(image, scipy.linalg.expm(algebra(group, motion) * stop / whole)) for stop in stops]
    return sum(float(np.linalg.norm(b - a)) for a, b in pairwise(path)) / float(np.linalg.norm(image))


class Plain:
    """The search for one image and one target."""

    def __init__(self, net: torch.nn.Module, group: Group, image: np.ndarray) -> None:
        self.net, self.group, self.image = net, group, image
        self.original = int(self.scores(np.eye(3)).argmax())

    def scores(self, matrix: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return self.net(torch.tensor(moved(self.image, matrix), dtype=torch.float32)[None, None])[0].numpy()

    def gradient(self, image: np.ndarray, target: int) -> np.ndarray:
        leaf = torch.tensor(image, dtype=torch.float32)[None, None].requires_grad_()
        scores = self.net(leaf)[0]
        return torch.autograd.grad(scores[self.original] - scores[target], leaf)[0].numpy().ravel()

    def motion(self, target: int, most: int = 50) -> np.ndarray | None:
        """The smallest motion towards a target, or to whatever class comes first."""
        place, last = np.eye(3), np.zeros(self.group.dimension)
        for _ in range(most):
            image = moved(self.image, place)
            way = np.linalg.lstsq(columns(self.group, image), self.gradient(image, target), rcond=1e-6)[0]
            ways = [step * way / np.linalg.norm(way) + 0.1 * last for step in LENGTHS]
            ahead = [place @ scipy.linalg.expm(algebra(self.group, -step)) for step in ways]
            gaps = [scores[self.original] - scores[target] for scores in map(self.scores, ahead)]
            best = int(np.argmin(gaps))
            if int(self.scores(ahead[best]).argmax()) != self.original:
                return coordinates(self.group, self.shortened(place, ways[best]))
            place, last = ahead[best], ways[best]
        return None

    def shortened(self, place: np.ndarray, way: np.ndarray) -> np.ndarray:
        for share in [*(1 - 0.8**k for k in range(1, 21)), 1.0]:
            end: np.ndarray = place @ scipy.linalg.expm(algebra(self.group, -share * way))
            if int(self.scores(end).argmax()) != self.original:
                break
        return end


@pytest.mark.parametrize("name", ["translation", "similarity"])
def test_manifool_finds_what_a_plain_one_finds(name: str) -> None:
    net, group, images = Random().eval(), GROUPS[name], shapes(3)
    found = searched(bench(net, images), name, least=0.0, targets=4)
    for place, image in enumerate(images[:, 0].numpy() / 255.0):
        plain = Plain(net, group, image)
        others = np.argsort(-plain.scores(np.eye(3)))[1:5]
        ends = [end for end in map(plain.motion, others.tolist()) if end is not None]
        least = min(length(group, image, end) for end in ends)
        assert float(found.score[place]) == pytest.approx(least, rel=0.01)
