"""Questions of a lens's own, beside trials: what is done with whole images where they are.

A lens that follows slopes or measures paths yields a `Task`: how many pieces it has, and a function that does some of them.
The engine cuts it into batches, lets them run side by side and puts together what comes back, on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor

from brinell.motion.frames import Frames
from brinell.motion.groups import Group

NO_ANSWER = -2
Method = Literal["manifool", "manitest", "random", "grid"]


@dataclass(frozen=True)
class Motion:
    """Motions of a group that one method found, which can be carried out by their coordinates: no model is needed."""

    group: Group
    method: Method

    @property
    def name(self) -> str:
        """The group's name."""
        return self.group.name

    @property
    def id(self) -> str:
        """The full name, as rows have it."""
        return f"{self.group.name}:{self.method}"

    @property
    def white_box(self) -> bool:
        """Whether it needs gradients."""
        return False


class MotionSearch(Motion):
    """One method on one group."""

    @property
    def white_box(self) -> bool:
        """Whether it needs gradients."""
        return self.method == "manifool"


class Stage(Protocol):
    """A shard's images as they move, and the model that looks at them. Samples are numbers of the shard, on the host."""

    seed: int
    ids: Tensor  # of the samples, on the host
    labels: Tensor  # on the host

    def frames(self, samples: Tensor) -> Frames:
        """The whole images in the model's scale: before its crop, after its normalisation."""

    def seen(self, samples: Tensor) -> Tensor | None:
        """Which pixels of whole images the model sees, (N or 1, 1, H, W); None: all of them."""

    def scores(self, samples: Tensor, matrices: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Scores (N, K) of samples before any softmax, moved by matrices (N, 3, 3), and the label that wins.

        The label is -1 where a detector finds nothing, and `NO_ANSWER` where the model gave no number.
        """

    def gradient(self, images: Tensor, samples: Tensor, plus: Tensor, minus: Tensor) -> Tensor:
        """The gradient of score `plus` less score `minus` (N,) with respect to whole images, which are of samples."""


@dataclass(frozen=True)
class Task:
    """Something to be done `count` times, in batches; `images` of them go through the model."""

    count: int
    do: Callable[[Stage, slice], dict[str, Tensor]]
    images: int = 0


Done = dict[str, Tensor]
