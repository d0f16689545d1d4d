"""The one white-box operator of seed 1: it follows the gradient of the model under test.

The authors published no code for it and their text, tables and figures disagree, so both usual readings are offered.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from brinell.perturb.operator import Facts, step_operator
from brinell.perturb.papers import SWINGLER_2022

_GRADIENT = Facts(
    "gradient descent",
    "iterations",
    lambda level, h, w: level,
    "local",
    "pixel",
    source=SWINGLER_2022,
)


@step_operator("gradient_descent", _GRADIENT, variant="sign")
def gradient_descent(images: Tensor, gradient: Tensor) -> Tensor:
    """One grey level along the sign of the loss gradient."""
    return _moved(images, gradient.sign())


@step_operator("gradient_descent", _GRADIENT, variant="l2")
def gradient_descent_l2(images: Tensor, gradient: Tensor) -> Tensor:
    """Along the gradient itself, by as much in L2 as one grey level everywhere, in whole grey levels."""
    length = gradient.flatten(1).norm(dim=1).clamp(min=1e-30)[:, None, None, None]
    return _moved(images, gradient / length * math.sqrt(gradient[0].numel()))


def _moved(images: Tensor, by: Tensor) -> Tensor:
    return (images.to(torch.float32) + by).round_().clamp_(0, 255).to(torch.uint8)
