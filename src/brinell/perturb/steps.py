"""The level that each sample of a shard has reached under one step operator."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class StepCache:
    """Changed images by sample, so that the next level adds one step instead of starting from the clean image."""

    def __init__(self, inputs: Tensor) -> None:
        self.inputs = inputs
        self.operator: Any = None
        self.levels = torch.zeros(len(inputs), dtype=torch.int64)
        self.images = inputs

    def begin(self, operator: Any) -> None:
        """Start from the clean images, unless they are under this operator already."""
        if self.operator is not operator:
            self.operator = operator
            self.levels.zero_()
            self.images = self.inputs.clone()

    def at(self, samples: Tensor, rows: Tensor | slice, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """Return each sample's level and its image there; samples beyond the wanted level start again."""
        start = self.levels[samples]
        if bool((start > wanted).any()):
            self.images[rows] = self.inputs[rows]
            start = torch.zeros_like(start)
        return start, self.images[rows]

    def keep(self, samples: Tensor, rows: Tensor | slice, levels: Tensor, images: Tensor) -> None:
        """Store the level and the image that samples have reached."""
        self.levels[samples] = levels
        self.images[rows] = images
