"""A model whose breaking point is known, for tests and first steps."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from brinell.errors import ConfigError


class GreyThreshold(nn.Module):
    """Says "light" where the mean of an image lies above a threshold in [0, 1], and "dark" below it."""

    threshold: Tensor

    def __init__(self, threshold: float) -> None:
        super().__init__()
        self.register_buffer("threshold", torch.tensor(threshold))

    def forward(self, images: Tensor) -> Tensor:
        """Scores for light and dark."""
        above = (images.mean((1, 2, 3)) - self.threshold) * 20
        return torch.stack([above, -above], 1)


def grey_threshold(text: str) -> GreyThreshold:
    """`grey` or `grey:0.3`: a threshold model."""
    kind, _, number = text.partition(":")
    try:
        if kind == "grey":
            return GreyThreshold(float(number or 0.25))
    except ValueError:
        pass
    raise ConfigError(f"expected fake:grey or fake:grey:THRESHOLD, got fake:{text}")
