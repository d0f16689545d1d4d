"""Pictures that look alike, by a perceptual hash: 64 bits of the coarse structure of the grey image (a DCT hash)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from brinell.models.preprocess import Preprocess

SIDE, KEPT = 32, 8


def hashes(images: Tensor) -> Tensor:
    """Canvases (N, C, H, W), uint8, as 64 bits each: which of the lowest 8×8 frequencies lie above their median."""
    small = Preprocess(SIDE, SIDE, channels=1, interpolation="bilinear").inputs(images)[:, 0].to(torch.float64)
    waves = _cosines()
    low = (waves @ small @ waves.T).flatten(1)
    middle = low[:, 1:].median(1, keepdim=True).values  # the first is the mean grey, which says nothing of structure
    return low > middle


def _cosines() -> Tensor:
    """The first rows of the DCT's matrix, float64 (KEPT, SIDE)."""
    place, wave = torch.arange(SIDE, dtype=torch.float64), torch.arange(KEPT, dtype=torch.float64)
    return torch.cos(math.pi / SIDE * (place[None] + 0.5) * wave[:, None])


class Seen:
    """The hashes of pictures that were taken."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self._count = 0
        self._signs = torch.empty(256, KEPT * KEPT)

    def takes(self, bits: Tensor) -> bool:
        """Whether a picture with this hash is unlike all that were taken, which it then is."""
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
