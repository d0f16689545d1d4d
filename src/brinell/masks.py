"""Masks: the class of each pixel, int16 (N, H, W). Pixels that are `IGNORED` have no class and count for nothing."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

IGNORED = -1


@dataclass(frozen=True)
class Overlap:
    """How masks agree with the true ones: pixels of each class that both have, that either has, and that the true one has,
    int32 (N, K) each; and the share of pixels whose class is another than on the clean image, float32 (N,).
    """

    common: Tensor
    union: Tensor
    true: Tensor
    relabelled: Tensor

    def at(self, rows: Tensor | slice) -> Overlap:
        """Return the same for some images."""
        return Overlap(self.common[rows], self.union[rows], self.true[rows], self.relabelled[rows])

    @property
    def class_iou(self) -> Tensor:
        """Intersection over union of each class, float32 (N, K); NaN for a class that neither mask has."""
        return self.common / self.union  # 0 / 0 is NaN

    @property
    def iou(self) -> Tensor:
        """Mean intersection over union of the classes that the true mask has, float32 (N,); NaN if it has none."""
        there = self.true > 0
        return self.class_iou.masked_fill(~there, 0).sum(1) / there.sum(1)


def overlap(predicted: Tensor, true: Tensor, clean: Tensor, classes: int) -> Overlap:
    """Return how predicted masks agree with the true ones, and with the answers to the clean images."""
    counted = true >= 0
    own, expected = (_count(mask, counted & (mask >= 0), classes) for mask in (predicted, true))
    common = _count(true, counted & (predicted == true), classes)
    shown = (clean >= 0) & (predicted >= 0)
    relabelled = ((predicted != clean) & shown).sum((1, 2)) / shown.sum((1, 2)).clamp(min=1)
    return Overlap(common, own + expected - common, expected, relabelled)


def class_shares(masks: Tensor, classes: int, background: int | None = None) -> Tensor:
    """Return the share of the pixels that each class has, float32 (N, K); NaN for a mask without classes.

    The background has a share only where there is nothing else.
    """
    shares = _count(masks, masks >= 0, classes) / (masks >= 0).sum((1, 2))[:, None]
    if background is not None:
        alone = shares[:, background] == shares.sum(1)
        shares[:, background] = shares[:, background].where(alone | shares[:, background].isnan(), 0)
    return shares


def move_masks(masks: Tensor, matrices: Tensor) -> Tensor:
    """Move masks (N, H, W) by matrices (N, 3, 3) on the (x, y, 1) of pixel centres; what comes from outside is ignored."""
    count, height, width = masks.shape
    inverse = matrices.inverse().to(masks.device, torch.float32)
    rows, columns = (torch.arange(side, device=masks.device, dtype=torch.float32) for side in (height, width))
    # x, y and w of each pixel's source, as sums of a part that depends on the column and one that depends on the row
    x, y, w = (
        inverse[:, row, 0, None, None] * columns + (inverse[:, row, 1, None] * rows + inverse[:, row, 2, None])[..., None]
        for row in range(3)
    )
    left, top = (x / w).round_(), (y / w).round_()
    inside = (w > 0) & (left >= 0) & (left < width) & (top >= 0) & (top < height)
    source = torch.where(inside, top * width + left, 0).to(torch.int64)
    return masks.flatten(1).gather(1, source.flatten(1)).view(count, height, width).masked_fill(~inside, IGNORED)


def resize_masks(masks: Tensor, height: int, width: int) -> Tensor:
    """Return masks (N, H, W) scaled to a size: a pixel has the class of the pixel that its centre falls on."""
    if tuple(masks.shape[1:]) == (height, width):
        return masks
    rows, columns = (
        ((torch.arange(there, device=masks.device) + 0.5) * here / there).long()
        for here, there in zip(masks.shape[1:], (height, width), strict=True)
    )
    return masks[:, rows[:, None], columns]


def main_classes(masks: Tensor, classes: int, background: int | None = None) -> Tensor:
    """Return the class that covers most of each mask, int64 (N,); `IGNORED` if it has none."""
    shares = class_shares(masks, classes, background)
    return shares.argmax(1).masked_fill(shares.isnan().any(1), IGNORED)


def _count(masks: Tensor, counted: Tensor, classes: int) -> Tensor:
    """Return how many of the `counted` pixels have each class, int32 (N, K)."""
    count = len(masks)
    first = torch.arange(count, device=masks.device)[:, None, None] * classes
    indices = torch.where(counted, masks + first, count * classes)
    return torch.bincount(indices.flatten(), minlength=count * classes + 1)[:-1].view(count, classes).to(torch.int32)
