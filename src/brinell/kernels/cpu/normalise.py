"""A kernel that normalises images: each value is read once and written once."""

from __future__ import annotations

import numpy as np
import torch
from numpy import float32
from torch import Tensor

from brinell.kernels.cpu.compiled import kernel


@kernel
def _normalise(inputs, scale, shift, images):  # type: ignore[no-untyped-def]  # Numba infers types
    for image in range(len(inputs)):
        for channel in range(inputs.shape[1]):
            values, target = inputs[image, channel], images[image, channel]
            for at in range(len(values)):
                target[at] = float32(values[at]) * scale[channel] + shift[channel]


def normalise(inputs: Tensor, images: Tensor, scale: Tensor, shift: Tensor, *, bgr: bool) -> None:
    """Write inputs (N, C, H, W), uint8, times `scale` plus `shift`, both float32 (C, 1, 1) or (1, 1, 1), to `images`.

    These may be of any precision and memory format. `bgr`: red and blue are swapped.
    """
    factors = [np.ascontiguousarray(each.expand(inputs.shape[1], 1, 1).flatten().numpy()) for each in (scale, shift)]
    plain = images if images.dtype == torch.float32 and images.is_contiguous() else torch.empty(inputs.shape)
    target = plain.flatten(2).numpy()
    _normalise(inputs.contiguous().flatten(2).numpy(), *factors, target[:, ::-1] if bgr else target)
    if plain is not images:
        images.copy_(plain)
