"""A model that says on which side an image is brighter: mirroring breaks it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from brinell.classes import Classes
from brinell.config.execution import Execution
from brinell.config.model import ModelOptions
from brinell.models.model import Model
from brinell.models.modules import model_from_module
from brinell.models.preprocess import Preprocess


class Side(nn.Module):
    """Compares the means of the left and the right half."""

    def forward(self, images: Tensor) -> Tensor:
        """Return scores for left and right."""
        left, right = (half.mean((1, 2, 3)) for half in images.chunk(2, 3))
        return torch.stack([left, right], 1) * 10


def open_side(rest: str, options: ModelOptions, execution: Execution) -> Model:
    """Open the model."""
    known, classes = Preprocess(height=32, width=32), Classes(("left", "right"))
    return model_from_module(Side(), options, execution, known=known, classes=classes)
