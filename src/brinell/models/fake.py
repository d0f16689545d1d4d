"""A model with a known breaking point, for tests and first steps."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from brinell.classes import Classes
from brinell.config.execution import Execution
from brinell.config.model import ModelOptions
from brinell.errors import ConfigError
from brinell.models.model import Model
from brinell.models.modules import model_from_module
from brinell.models.preprocess import Preprocess


class GreyThreshold(nn.Module):
    """Predicts "light" if the mean of an image is above a threshold in [0, 1], and "dark" if it is below."""

    threshold: Tensor

    def __init__(self, threshold: float) -> None:
        super().__init__()
        self.register_buffer("threshold", torch.tensor(threshold))

    def forward(self, images: Tensor) -> Tensor:
        """Return scores for light and dark."""
        above = (images.mean((1, 2, 3)) - self.threshold) * 20
        return torch.stack([above, -above], 1)


def open_fake(rest: str, options: ModelOptions, execution: Execution) -> Model:
    """Open `fake:grey` or `fake:grey:THRESHOLD`."""
    known = Preprocess(height=32, width=32)
    return model_from_module(_build(rest), options, execution, known=known, classes=Classes(("light", "dark")))


def _build(text: str) -> GreyThreshold:
    kind, _, number = text.partition(":")
    try:
        if kind == "grey":
            return GreyThreshold(float(number or 0.25))
    except ValueError:
        pass
    raise ConfigError(f"expected fake:grey or fake:grey:THRESHOLD, got fake:{text}")
