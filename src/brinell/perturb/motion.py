"""Motions of whole images: a group's element, by its coordinates, found by one search method."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from brinell.errors import ConfigError
from brinell.motion.groups import Group
from brinell.motion.names import describe
from brinell.perturb.change import ActsOn, Change, ChangeDefaults, Layout, Renderer, Size, Slider
from brinell.perturb.outline import outlined

METHOD_TITLES = {"manifool": "ManiFool", "manitest": "Manitest", "random": "random", "grid": "grid"}
WHITE_BOX = ("manifool",)  # methods that follow gradients
GIVEN = "given"  # the method of motions that people choose
# how far coordinates can be turned: radians, logarithms and shares; those of pixels by a share of the model input
_REACH = {"rotation": 1.6, "scale": 0.7, "stretch": 0.35, "shear": 0.35, "b31": 0.002, "b32": 0.002}
_PIXELS = ("x", "y")


@dataclass(frozen=True)
class Motion(ChangeDefaults):
    """Motions of a group, as one `method` finds them. `searching` tells the search, which may need gradients, from the
    motions that it found, which can be replayed without a model.
    """

    group: Group
    method: str
    searching: bool = False

    @property
    def name(self) -> str:
        """Name of the group."""
        return self.group.name

    @property
    def variant(self) -> str:
        """Name of the method."""
        return self.method

    @property
    def id(self) -> str:
        """Full name, as rows write it."""
        return f"{self.group.name}:{self.method}"

    @property
    def title(self) -> str:
        """Name for people."""
        return (
            self.group.title
            if self.method == GIVEN
            else f"{self.group.title} ({METHOD_TITLES.get(self.method, self.method)})"
        )

    @property
    def unit(self) -> str:
        """Amounts are geodesic scores."""
        return "geodesic score"

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the group's coordinates."""
        return self.group.parts

    @property
    def acts_on(self) -> ActsOn:
        """It moves the original."""
        return "original"

    @property
    def white_box(self) -> bool:
        """Whether the search needs gradients."""
        return self.searching and self.method in WHITE_BOX

    def describe(self) -> dict[str, Any]:
        """Return the facts that a run's manifest stores."""
        return {**super().describe(), "coordinates": list(self.group.parts), "group": self.group.title}

    def prepare(self, renderer: Renderer, samples: Tensor) -> None:
        """Get the originals ready to be moved."""
        _ = renderer.moving

    def images(self, renderer: Renderer, samples: Tensor, parameters: Tensor, fields: Tensor | None = None) -> Tensor:
        """Return what the model sees of moved originals, in whole grey levels; searches move images without rounding."""
        return renderer.preprocess.denormalise(renderer.moving.view(samples, self.group.exp(parameters)))

    def matrices(self, parameters: Tensor, layout: Layout) -> Tensor | None:
        """Return where pixels of the clean model input move."""
        moves = self.group.exp(parameters).inverse()
        each = zip(moves, layout.sizes, strict=True)
        return torch.stack([layout.preprocess.centre_on_input(move, *size) for move, size in each])

    def sliders(self, model_input: Size, original: Size) -> tuple[Slider, ...]:
        """Return the ranges of its coordinates."""
        far = min(model_input) / 2
        reaches = [far if part in _PIXELS else _REACH.get(part, 0.3) for part in self.group.parts]
        return tuple(
            Slider(part, -reach, reach, reach / 200) for part, reach in zip(self.group.parts, reaches, strict=True)
        )

    def caption(self, parameters: Sequence[float], model_input: Size) -> str:
        """Return a motion in words."""
        return describe(self.group, parameters) if any(parameters) else "clean"

    def pictures(self, renderer: Renderer, sample: int, parameters: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return the whole image with the outline of what the moved one shows, and the moved image."""
        matrices = self.group.exp(parameters)
        still = torch.eye(3, dtype=torch.float64)
        clean, moved = (renderer.moving.moved(sample, way).cpu() for way in (still, matrices[0]))
        return outlined(clean, moved, matrices[0])


def as_motion(change: Change) -> Motion:
    """Return a change that is a motion, or raise."""
    if not isinstance(change, Motion):
        raise ConfigError(f"{change.id} does not move whole images; choose an operator that does, such as affine:manifool")
    return change
