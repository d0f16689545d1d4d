"""Images that move along directions, and how far apart they are at successive stops.

Moved images are made and compared; on a GPU, a kernel compares them without making them, so that a whole path takes two
launches, and what is found for an image doesn't depend on the others in its batch.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Protocol, Self

import torch
from torch import Tensor

from brinell.kernels import kernels_for
from brinell.motion.frames import Frames
from brinell.motion.groups import Group

_TOGETHER = {"cpu": 1 << 18, "cuda": 1 << 27}  # values of moved images that are computed at once


class Paths(Protocol):
    """Paths of images along directions (N, d); `rows` are their indices among the images that set out.

    `stride` is the number of stops to advance by at once, `checked` the number after which to check how far paths have
    come. With `levels`, gains from several points of each path may be asked for at once.
    """

    rows: Tensor
    checked: int
    levels: bool

    @property
    def stride(self) -> int: ...  # noqa: D102

    def select(self, which: Tensor) -> Self:
        """Return the paths of some images (a mask)."""

    def advance(self, along: Tensor) -> Tensor:
        """Advance to stops at distances (N, K), which don't decrease; return the gains between them, float64 (N, K)."""

    def leave(self, along: Tensor) -> Callable[[Tensor], Tensor]:
        """Return a function from distances, (N,) or with `levels` (N, R), to gains from those given."""


def paths_along(frames: Frames, group: Group, directions: Tensor) -> Paths:
    """Return the paths of images along directions (N, d) on the host."""
    kernels = kernels_for("paths", frames.images) if frames.images.dtype == torch.float32 else None
    return MovedPaths(frames, group, directions) if kernels is None else FusedPaths(kernels, frames, group, directions)


class MovedPaths:
    """Paths whose images are made; `last` are those at the last stop."""

    checked, levels = 16, False

    def __init__(self, frames: Frames, group: Group, directions: Tensor) -> None:
        self.frames, self.group, self.directions = frames, group, directions
        self.rows = torch.arange(len(directions))
        self.last = frames.images

    @property
    def stride(self) -> int:
        """The number of steps computed at once."""
        return max(1, _TOGETHER.get(self.last.device.type, 1 << 20) // max(1, self.last.numel()))

    def select(self, which: Tensor) -> MovedPaths:
        """Return the paths of some images (a mask)."""
        if bool(which.all()):
            return self
        index = which.nonzero()[:, 0]
        some = MovedPaths(self.frames.select(index), self.group, self.directions[index])
        some.rows, some.last = self.rows[index], self.last[index.to(self.last.device)]
        return some

    def advance(self, along: Tensor) -> Tensor:
        """Advance to stops (N, K) along the directions; return the gains from stop to stop, float64 (N, K)."""
        images = self.frames.move(self.group.exp(self.directions[:, None] * along[..., None]))
        between = lengths_of((images[:, 1:] - images[:, :-1]).flatten(0, 1)).view(len(images), -1)
        gained = torch.cat([lengths_of(images[:, 0] - self.last)[:, None], between], 1)
        self.last = images[:, -1]
        return gained

    def leave(self, along: Tensor) -> Callable[[Tensor], Tensor]:
        """Return a function from distances (N,) along the directions to gains from those given, (N,)."""
        origin = self._images(along)
        return lambda there: lengths_of(self._images(there) - origin)

    def _images(self, along: Tensor) -> Tensor:
        return self.frames.move(self.group.exp(self.directions * along[:, None]))


class FusedPaths:
    """Paths that `kernels` follow; `last` is how far along the last stop is. Images stay where they are."""

    checked, levels, stride = 64, True, 128

    def __init__(self, kernels: ModuleType, frames: Frames, group: Group, directions: Tensor) -> None:
        self.kernels, self.frames, self.group, self.directions = kernels, frames, group, directions
        self.rows, self.elements = torch.arange(len(directions)), group.algebra(directions)
        self.last = torch.zeros(len(directions), dtype=torch.float64)

    def select(self, which: Tensor) -> FusedPaths:
        """Return the paths of some images (a mask)."""
        some = FusedPaths(self.kernels, self.frames, self.group, self.directions[which])
        some.rows, some.last = self.rows[which], self.last[which]
        return some

    def advance(self, along: Tensor) -> Tensor:
        """Advance to stops (N, K) along the directions; return the gains from stop to stop, float64 (N, K)."""
        stops = torch.cat([self.last[:, None], along], 1)
        numbers = 1 + (along.diff(dim=1) > 0).sum(1)  # no way is gained by staying
        self.last = along[:, -1]
        return self._gains(self.rows, self.elements, stops, numbers)

    def leave(self, along: Tensor) -> Callable[[Tensor], Tensor]:
        """Return a function from distances (N, R) along the directions to gains from those given, (N, R)."""
        many = along.shape[1]
        rows, elements = self.rows.repeat_interleave(many), self.elements.repeat_interleave(many, 0)

        def gains(there: Tensor) -> Tensor:
            stops = torch.stack([along.flatten(), there.flatten()], 1)
            return self._gains(rows, elements, stops, torch.ones_like(rows)).view(along.shape)

        return gains

    def _gains(self, rows: Tensor, elements: Tensor, stops: Tensor, numbers: Tensor) -> Tensor:
        """Return the gains (N, K) between successive `numbers` of stops at distances (N, K + 1) along elements."""
        device, corners = self.frames.images.device, self.frames.corners
        own = corners.expand(len(rows), -1) if len(corners) == 1 else corners[rows]
        wide, tall = (1 - 2 * own).unbind(1)
        places = torch.stack([rows, tall, wide, numbers], 1).to(torch.int32)
        motions = self.kernels.find_motions(*(values.to(device, non_blocking=True) for values in (elements, stops, own)))
        squares: Tensor = self.kernels.compare_stops(
            self.frames.images,
            motions,
            places.to(device, non_blocking=True),
            perspective=bool(self.group.generators[:, 2, :2].any()),
        )
        return squares.sqrt()


def lengths_of(images: Tensor) -> Tensor:
    """Return L2 norms, float64 (N,)."""
    lengths: Tensor = images.flatten(1).norm(dim=1).to(torch.float64)
    return lengths
