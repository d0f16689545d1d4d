"""Gradient descent (Swingler 2022), the white-box operator: it follows the loss gradient of the model under test.

No code was published for it, and the paper's text, tables and figures disagree, so both common variants are provided.
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
    """Move every value by one grey level along the sign of the loss gradient."""
    return _add(images, gradient.sign())


@step_operator("gradient_descent", _GRADIENT, variant="l2")
def gradient_descent_l2(images: Tensor, gradient: Tensor) -> Tensor:
    """Step along the loss gradient by the L2 length of one grey level in every value, rounded to whole grey levels."""
    length = gradient.flatten(1).norm(dim=1).clamp(min=1e-30)[:, None, None, None]
    return _add(images, gradient / length * math.sqrt(gradient[0].numel()))


def _add(images: Tensor, step: Tensor) -> Tensor:
    return (images.to(torch.float32) + step).round_().clamp_(0, 255).to(torch.uint8)
