"""How far a changed image is from the clean one, and what is left in it."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Difference:
    """Distances of a batch, float32 (T,) each. Values count as numbers in [0, 1].

    `changed` is the share of pixels of which any channel differs, `l0` the number of values that differ.
    """

    changed: Tensor
    l0: Tensor
    l1: Tensor
    l2: Tensor
    linf: Tensor
    mae: Tensor
    mse: Tensor


def difference(clean: Tensor, changed: Tensor) -> Difference:
    """The distances between two batches of uint8 images."""
    gap = torch.maximum(clean, changed).sub_(torch.minimum(clean, changed))
    values = gap[0].numel()
    touched = functools.reduce(torch.bitwise_or, gap.unbind(1))
    flat = gap.flatten(1)
    wide = flat.to(torch.float32)
    l1, l2 = wide.sum(1) / 255, torch.linalg.vector_norm(wide, dim=1) / 255
    return Difference(
        changed=_nonzero(touched.flatten(1)) / touched[0].numel(),
        l0=_nonzero(flat),
        l1=l1,
        l2=l2,
        linf=flat.amax(1) / 255,
        mae=l1 / values,
        mse=l2 * l2 / values,
    )


def _nonzero(flat: Tensor) -> Tensor:
    return flat.ne(0).view(torch.uint8).sum(1, dtype=torch.int32).to(torch.float32)


def mean_grey(images: Tensor) -> Tensor:
    """The mean of all values, 0..255."""
    return images.flatten(1).to(torch.float32).mean(1)


def colours(images: Tensor) -> Tensor:
    """The number of distinct colours in each image."""
    weights = torch.tensor([1 << (8 * channel) for channel in range(images.shape[1])], device=images.device)
    packed = (images.to(torch.int32) * weights.to(torch.int32)[:, None, None]).sum(1, dtype=torch.int32).flatten(1)
    ordered = packed.sort(1).values
    return (ordered[:, 1:] != ordered[:, :-1]).sum(1) + 1
