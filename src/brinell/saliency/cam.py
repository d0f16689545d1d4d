"""Class activation maps: which positions of a layer support a class, from its activations and gradients (N, C, h, w).

A map is a weighted sum of the layer's channels, clipped at 0. Grad-CAM (Selvaraju et al. 2017) weights a channel by
its mean gradient. Grad-CAM++ (Chattopadhay et al. 2018, eq. 19 and 20) sums the positive gradients g of a channel A,
each times α = g² / (2g² + g³·ΣA), which is 0 where the denominator is. The paper's Y is exp of the class score; its
factor exp(S) in all gradients cancels when the map is scaled to 0..1. Both weight a channel alike everywhere, so other
objects of the class light up, too. ODAM (Zhao and Chan, ICLR 2023), made for a detector's boxes, weights each position by
its own gradient; the paper's smoothing of gradients is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import torch
from torch import Tensor

from brinell.config.saliency import CamMethod

METHODS: tuple[str, ...] = get_args(CamMethod)


def gradcam_weights(activations: Tensor, gradients: Tensor) -> Tensor:
    """Return Grad-CAM's weight of each channel, (N, C)."""
    return gradients.mean((2, 3))


def gradcam_plus_plus_weights(activations: Tensor, gradients: Tensor, epsilon: float = 0.0) -> Tensor:
    """Return Grad-CAM++'s weight of each channel, (N, C).

    pytorch-grad-cam adds an `epsilon` of 1e-6 to the denominator, which is not small compared to squares of small
    gradients.
    """
    total = activations.sum((2, 3), keepdim=True)
    squares = gradients.square()
    denominator = 2 * squares + squares * gradients * total + epsilon
    alpha = torch.where((gradients != 0) & (denominator != 0), squares / denominator, 0.0)
    return (gradients.clamp(min=0) * alpha).sum((2, 3))


def odam_weights(activations: Tensor, gradients: Tensor) -> Tensor:
    """Return ODAM's weight of each position of each channel, (N, C, h, w)."""
    return gradients


WEIGHTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "gradcam": gradcam_weights,
    "gradcam++": gradcam_plus_plus_weights,
    "odam": odam_weights,
}


def class_activation(activations: Tensor, weights: Tensor, height: int, width: int) -> Tensor:
    """Return maps in 0..1 at the size of the model input, float32 (N, H, W): scaled first, then enlarged bilinearly.

    Weights are of channels (N, C), or of their positions (N, C, h, w).
    """
    maps = torch.einsum("nchw,nc->nhw" if weights.ndim == 2 else "nchw,nchw->nhw", activations, weights).clamp(min=0)
    maps = maps - maps.amin((1, 2), keepdim=True)
    highest = maps.amax((1, 2), keepdim=True)
    maps = maps / highest.masked_fill(highest == 0, 1)
    larger = torch.nn.functional.interpolate(maps[:, None], (height, width), mode="bilinear", align_corners=False)
    return larger[:, 0]
