"""Gradients in the precision of a model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import brinell
from brinell.config.execution import Execution, Precision


class Noting(torch.autograd.Function):
    """Notes whether TF32 is allowed in the backward pass."""

    allowed: list[bool]

    @staticmethod
    def forward(context: Any, values: Tensor) -> Tensor:
        return values.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> Tensor:
        Noting.allowed += [torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32]
        return gradient


class Means(nn.Module):
    """Scores two classes by the means of channels."""

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = Noting.apply(images.mean((2, 3))[:, :2])
        return scores


@pytest.mark.parametrize(("precision", "allowed"), [("fp32", False), ("tf32", True)])
def test_white_box_operators_get_gradients_in_the_precision_of_the_model(precision: Precision, allowed: bool) -> None:
    """On GPUs torch allows TF32 for convolutions by default; what it allows elsewhere is left as it was."""
    Noting.allowed = []
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    model = brinell.wrap(Means(), size=8, execution=Execution(device="cpu", runtime="torch", precision=precision))
    model.gradient(torch.zeros(1, 3, 8, 8, dtype=torch.uint8), torch.tensor([0]))
    assert Noting.allowed == [allowed, allowed]
    assert (torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32) == before
