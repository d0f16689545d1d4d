"""Near-duplicates, by a perceptual hash: 64 bits of the coarse structure of the grey image (a DCT hash)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from brinell.models.preprocess import Preprocess

SIDE, KEPT = 32, 8


def perceptual_hashes(images: Tensor) -> Tensor:
    """Return 64 bits per image (uint8 (N, C, H, W)): which of the lowest 8×8 frequencies lie above their median."""
    small = Preprocess(SIDE, SIDE, channels=1, interpolation="bilinear").inputs(images)[:, 0].to(torch.float64)
    waves = _cosines()
    low = (waves @ small @ waves.T).flatten(1)
    middle = low[:, 1:].median(1, keepdim=True).values  # without the mean grey, which says nothing about structure
    return low > middle


def _cosines() -> Tensor:
    """Return the first rows of the DCT matrix, float64 (KEPT, SIDE)."""
    position, wave = torch.arange(SIDE, dtype=torch.float64), torch.arange(KEPT, dtype=torch.float64)
    return torch.cos(math.pi / SIDE * (position[None] + 0.5) * wave[:, None])


class DuplicateFilter:
    """Admits images whose hashes differ from those of all admitted images in more than N bits."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self._count = 0
        self._signs = torch.empty(256, KEPT * KEPT)

    def admit(self, bits: Tensor) -> bool:
        """Whether an image with this hash is no near-duplicate; if so, remember it."""
        signs = bits.to(torch.float32) * 2 - 1
        known = self._signs[: self._count]
        differing = (KEPT * KEPT - known @ signs) / 2
        if bool((differing <= self.bits).any()):
            return False
        if self._count == len(self._signs):
            self._signs = torch.cat([self._signs, torch.empty_like(self._signs)])
        self._signs[self._count] = signs
        self._count += 1
        return True
