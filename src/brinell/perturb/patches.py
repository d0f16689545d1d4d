"""Many small rectangles in every image of a batch: where they lie, which pixels they hold, in which order they may go."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

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


def assign_rounds(patches: Patches) -> Tensor:
    """The earliest round in which each rectangle may go, (B, n), so that rounds give what one after another gives.

    A rectangle has to wait for every earlier one that it overlaps; its round is the longest such chain.
    """
    batch, count = patches.top.shape
    earlier, later = _meetings(patches)
    wave = patches.top.new_zeros(batch * count)
    while True:
        longer = torch.zeros_like(wave).scatter_reduce_(0, later, wave[earlier] + 1, "amax")
        if torch.equal(longer, wave):
            return wave.view(batch, count)
        wave = longer


def _meetings(patches: Patches) -> tuple[Tensor, Tensor]:
    """Every two rectangles of an image that have a pixel in common, the earlier and the later of them, as places in a list
    of all images' rectangles.

    From top to bottom a rectangle can meet only the few that begin next below it.
    """
    count = patches.top.shape[1]
    order = patches.top.argsort(1)
    low = patches.take(order)
    bottom = low.top + low.height
    below = torch.searchsorted(low.top, bottom) - torch.arange(count, device=order.device)
    most = max(1, int(below.max()) - 1)

    def next_ones(values: Tensor, beyond: int) -> Tensor:
        return pad(values, (0, most), value=beyond).unfold(1, most + 1, 1)[..., 1:]

    # narrow numbers and no comparisons, since there are many of them
    left, right = low.left.to(torch.int16), (low.left + low.width).to(torch.int16)
    across = torch.minimum(right[..., None], next_ones(right, 0)).sub_(torch.maximum(left[..., None], next_ones(left, 0)))
    down = bottom.to(torch.int16)[..., None] - next_ones(low.top.to(torch.int16), torch.iinfo(torch.int16).max)
    image, one, step = across.clamp_(0, 1).mul_(down.clamp_(0, 1)).nonzero().unbind(1)
    first, second = (order[image, place] for place in (one, one + 1 + step))
    return image * count + torch.minimum(first, second), image * count + torch.maximum(first, second)
