"""The mirror lens: query each image as it is and mirrored."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.lenses.entry import Entry
from brinell.lenses.method import Columns, Measuring, Method, Shard, Size, Trials
from brinell.lenses.outcomes import flatten
from brinell.perturb.change import ActsOn, Change, ChangeDefaults, Layout, Renderer, rows_of
from brinell_mirror.options import AXES, MirrorOptions


@dataclass(frozen=True)
class Mirror(ChangeDefaults):
    """Mirrors the model input along an axis. Its one parameter is 1 for mirrored and 0 for clean."""

    variant: str
    name: str = "mirror"
    unit: str | None = None
    parameters: tuple[str, ...] = ("mirrored",)

    @property
    def id(self) -> str:
        """Full name."""
        return f"{self.name}:{self.variant}"

    @property
    def title(self) -> str:
        """Name for people."""
        return f"mirrored ({self.variant})"

    @property
    def acts_on(self) -> ActsOn:
        """It changes the model input."""
        return "input"

    def images(self, renderer: Renderer, samples: Tensor, parameters: Tensor, fields: Tensor | None = None) -> Tensor:
        """Return samples, mirrored where their parameter is 1."""
        images = renderer.inputs[rows_of(samples, renderer.inputs.device)]
        mirrored = images.flip(3 if self.variant == "horizontal" else 2)
        return torch.where((parameters[:, 0] > 0).to(images.device)[:, None, None, None], mirrored, images)

    def matrices(self, parameters: Tensor, layout: Layout) -> Tensor | None:
        """Return where pixels go."""
        moves = torch.eye(3, dtype=torch.float64).repeat(len(parameters), 1, 1)
        axis, side = (0, layout.preprocess.width) if self.variant == "horizontal" else (1, layout.preprocess.height)
        moves[parameters[:, 0] > 0, axis, axis] = -1
        moves[parameters[:, 0] > 0, axis, 2] = side - 1
        return moves


def measure(shard: Shard, change: Mirror, options: MirrorOptions) -> Measuring:
    """Return one row per image, mirrored."""
    samples = torch.arange(shard.count)
    outcome = yield Trials(samples, change, torch.ones(shard.count, 1, dtype=torch.float64))
    columns: Columns = {
        "sample": samples,
        "level": torch.ones(shard.count, dtype=torch.int64),
        "correct": ~outcome.broken.cpu(),
        "clean_correct": ~shard.clean.broken.cpu(),
    }
    return columns | flatten(outcome)


def select(options: MirrorOptions) -> list[Mirror]:
    """Return the mirrors that the options name."""
    return [Mirror(axis) for axis in options.axes]


def count_trials(options: MirrorOptions, change: Change, image: Size, model_input: Size) -> int:
    """Return one trial per image."""
    return 1


def replay(options: MirrorOptions, name: str, size: Size) -> Mirror:
    """Return a mirror by its id."""
    return Mirror(name.partition(":")[2])


METHOD = Method(
    changes=select,
    measure=measure,
    trials=count_trials,
    replay=replay,
    catalogue=lambda: [Entry(f"mirror:{axis}", ("deterministic",), f"Mirror along the {axis} axis.") for axis in AXES],
)
