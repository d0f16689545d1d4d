"""Many small rectangles in every image of a batch: where they lie, which pixels they hold, in which order they may go."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from brinell.draws import Draws


@dataclass(frozen=True)
class Patches:
    """n rectangles an image, int64 (B, n) each, in pixels."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor

    def pixels(self, longest: int, height: int, width: int) -> tuple[Tensor, Tensor]:
        """Flat pixel indices (B, n, longest, longest) and which of them lie in the rectangle and in the image."""
        offsets = torch.arange(longest, device=self.top.device)
        rows, columns = self.top[..., None] + offsets, self.left[..., None] + offsets
        row_in = (offsets < self.height[..., None]) & (rows < height)
        column_in = (offsets < self.width[..., None]) & (columns < width)
        return rows[..., :, None] * width + columns[..., None, :], row_in[..., :, None] & column_in[..., None, :]

    def take(self, places: Tensor) -> Patches:
        """The rectangles at the given places (B, m) of each image."""
        return Patches(*(side.gather(1, places) for side in (self.top, self.left, self.height, self.width)))


def draw_patches(draws: Draws, count: int, height: int, width: int, *, shortest: int, longest: int) -> Patches:
    """Rectangles with sides uniform in shortest..longest (and no longer than the image), uniform inside the image."""
    tall = draws.between(0, count, shortest, min(longest, height))
    wide = draws.between(1, count, shortest, min(longest, width))
    return Patches(_place(draws, 2, height - tall), _place(draws, 3, width - wide), tall, wide)


def _place(draws: Draws, purpose: int, room: Tensor) -> Tensor:
    """Uniform integers in 0..room, for a room of its own an element."""
    bits = draws.bits(purpose, room.shape[1]).to(torch.int64).bitwise_and_(0xFFFFFFFF)
    return bits.mul_(room + 1).bitwise_right_shift_(32)


def waves(patches: Patches) -> Tensor:
    """The earliest round in which each rectangle may go, (B, n), so that rounds give what one after another gives.

    A rectangle has to wait for every earlier one that it overlaps; its round is the longest such chain.
    """
    batch, count = patches.top.shape
    meeting = _meet(patches.top, patches.height).mul_(_meet(patches.left, patches.width))
    image, one, other = meeting.nonzero().unbind(1)
    before = one < other
    earlier, later = ((image * count + place)[before] for place in (one, other))
    wave = patches.top.new_zeros(batch * count)
    while True:
        longer = torch.zeros_like(wave).scatter_reduce_(0, later, wave[earlier] + 1, "amax")
        if torch.equal(longer, wave):
            return wave.view(batch, count)
        wave = longer


def _meet(start: Tensor, length: Tensor) -> Tensor:
    """Which intervals of an image have a pixel in common, as 0 or 1, (B, n, n)."""
    # narrow numbers and no comparisons, since there are n² of them
    start, stop = start.to(torch.int16), (start + length).to(torch.int16)
    common = torch.minimum(stop[:, :, None], stop[:, None, :]).sub_(torch.maximum(start[:, :, None], start[:, None, :]))
    return common.clamp_(0, 1).to(torch.uint8)
