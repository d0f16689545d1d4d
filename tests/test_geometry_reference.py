"""ManiFool compared with a plain implementation: one image, target and step length at a time, with SciPy."""

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


def move(image: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """Move an image with SciPy: linear interpolation, zeros outside."""
    y, x = np.mgrid[:SIDE, :SIDE] - MIDDLE
    positions = matrix[:2, :2] @ np.stack([x.ravel(), y.ravel()]) + matrix[:2, 2:]
    wide = np.pad(image, 1)  # positions up to a pixel outside are interpolated with zeros
    return map_coordinates(wide, positions[::-1] + MIDDLE + 1, order=1, cval=0.0).reshape(SIDE, SIDE)


def algebra(group: Group, direction: np.ndarray) -> np.ndarray:
    return np.tensordot(direction, group.generators.numpy(), 1)


def coordinates(group: Group, matrix: np.ndarray) -> np.ndarray:
    basis = group.generators.numpy().reshape(group.dimension, -1)
    return np.linalg.lstsq(basis.T, scipy.linalg.logm(matrix).real.ravel(), rcond=None)[0]


def columns(group: Group, image: np.ndarray) -> np.ndarray:
    """Return the Jacobian (pixels, d), by central differences of the image."""
    wide = np.pad(image, 1)
    across, down = (wide[1:-1, 2:] - wide[1:-1, :-2]) / 2, (wide[2:, 1:-1] - wide[:-2, 1:-1]) / 2
    y, x = np.mgrid[:SIDE, :SIDE] - MIDDLE
    flow = group.generators.numpy() @ np.stack([x.ravel(), y.ravel(), np.ones(SIDE**2)])
    return (across.ravel() * flow[:, 0] + down.ravel() * flow[:, 1]).T


def length(group: Group, image: np.ndarray, motion: np.ndarray) -> float:
    """Return the length of the direct path, in steps of 0.05, over the norm."""
    whole = np.linalg.norm(motion)
    stops = [*np.arange(0, whole, 0.05), whole]
    path = [move(image, scipy.linalg.expm(algebra(group, motion) * stop / whole)) for stop in stops]
    return sum(float(np.linalg.norm(b - a)) for a, b in pairwise(path)) / float(np.linalg.norm(image))


class Plain:
    """The search for one image and one target."""

    def __init__(self, net: torch.nn.Module, group: Group, image: np.ndarray) -> None:
        self.net, self.group, self.image = net, group, image
        self.original = int(self.scores(np.eye(3)).argmax())

    def scores(self, matrix: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return self.net(torch.tensor(move(self.image, matrix), dtype=torch.float32)[None, None])[0].numpy()

    def gradient(self, image: np.ndarray, target: int) -> np.ndarray:
        leaf = torch.tensor(image, dtype=torch.float32)[None, None].requires_grad_()
        scores = self.net(leaf)[0]
        return torch.autograd.grad(scores[self.original] - scores[target], leaf)[0].numpy().ravel()

    def motion(self, target: int, most: int = 50) -> np.ndarray | None:
        """Return the smallest motion that changes the label, on the way to a target."""
        current, last = np.eye(3), np.zeros(self.group.dimension)
        for _ in range(most):
            image = move(self.image, current)
            direction = np.linalg.lstsq(columns(self.group, image), self.gradient(image, target), rcond=1e-6)[0]
            directions = [step * direction / np.linalg.norm(direction) + 0.1 * last for step in LENGTHS]
            ahead = [current @ scipy.linalg.expm(algebra(self.group, -step)) for step in directions]
            gaps = [scores[self.original] - scores[target] for scores in map(self.scores, ahead)]
            best = int(np.argmin(gaps))
            if int(self.scores(ahead[best]).argmax()) != self.original:
                return coordinates(self.group, self.shorten(current, directions[best]))
            current, last = ahead[best], directions[best]
        return None

    def shorten(self, current: np.ndarray, direction: np.ndarray) -> np.ndarray:
        for share in [*(1 - 0.8**k for k in range(1, 21)), 1.0]:
            end: np.ndarray = current @ scipy.linalg.expm(algebra(self.group, -share * direction))
            if int(self.scores(end).argmax()) != self.original:
                break
        return end


@pytest.mark.parametrize("name", ["translation", "similarity"])
def test_manifool_agrees_with_the_plain_implementation(name: str) -> None:
    net, group, images = Random().eval(), GROUPS[name], shapes(3)
    found = searched(bench(net, images), name, min_change=0.0, targets=4)
    for index, image in enumerate(images[:, 0].numpy() / 255.0):
        plain = Plain(net, group, image)
        others = np.argsort(-plain.scores(np.eye(3)))[1:5]
        ends = [end for end in map(plain.motion, others.tolist()) if end is not None]
        shortest = min(length(group, image, end) for end in ends)
        assert float(found.score[index]) == pytest.approx(shortest, rel=0.01)
