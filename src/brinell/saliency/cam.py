"""Class activation maps: which places of a layer speak for a class, from its activations and their gradients (N, C, h, w).

A map is the sum of the layer's channels, each with a weight, cut at 0. Grad-CAM (Selvaraju et al. 2017) weighs a channel by
its mean gradient. Grad-CAM++ (Chattopadhay et al. 2018, eq. 19 and 20) sums the positive gradients g of a channel A, each
times α = g² / (2g² + g³·ΣA), which is 0 where the denominator is. Its Y is exp of the class's score; the factor exp(S) that
this puts before all gradients leaves when the map is scaled to 0..1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import torch
from torch import Tensor

from brinell.config.saliency import Method

METHODS: tuple[str, ...] = get_args(Method)


def gradcam_weights(activations: Tensor, gradients: Tensor) -> Tensor:
    """Grad-CAM's weight of each channel, (N, C)."""
    return gradients.mean((2, 3))


def gradcam_plus_plus_weights(activations: Tensor, gradients: Tensor, epsilon: float = 0.0) -> Tensor:
    """Grad-CAM++'s weight of each channel, (N, C).

    pytorch-grad-cam adds an `epsilon` of 1e-6 to the denominator, which is not small beside squares of small gradients.
    """
    total = activations.sum((2, 3), keepdim=True)
    squares = gradients.square()
    below = 2 * squares + squares * gradients * total + epsilon
    share = torch.where((gradients != 0) & (below != 0), squares / below, 0.0)
    return (gradients.clamp(min=0) * share).sum((2, 3))


WEIGHTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "gradcam": gradcam_weights,
    "gradcam++": gradcam_plus_plus_weights,
}


def class_activation(activations: Tensor, weights: Tensor, height: int, width: int) -> Tensor:
    """Maps in 0..1 at the size of the model input, float32 (N, H, W): scaled first, then enlarged, linearly between places."""
    maps = torch.einsum("nchw,nc->nhw", activations, weights).clamp(min=0)
    maps = maps - maps.amin((1, 2), keepdim=True)
    most = maps.amax((1, 2), keepdim=True)
    maps = maps / most.masked_fill(most == 0, 1)
    larger = torch.nn.functional.interpolate(maps[:, None], (height, width), mode="bilinear", align_corners=False)
    return larger[:, 0]
