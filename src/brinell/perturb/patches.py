"""Random small rectangles in every image of a batch: their positions, their pixels, and rounds that keep their order."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from brinell.draws import Draws


@dataclass(frozen=True)
class Patches:
    """n rectangles per image, int64 (B, n) each, in pixels."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor

    def pixels(self, longest: int, height: int, width: int) -> tuple[Tensor, Tensor]:
        """Return flat pixel indices (B, n, longest, longest) and a mask of those inside the rectangle and the image."""
        offsets = torch.arange(longest, device=self.top.device)
        rows, columns = self.top[..., None] + offsets, self.left[..., None] + offsets
        row_in = (offsets < self.height[..., None]) & (rows < height)
        column_in = (offsets < self.width[..., None]) & (columns < width)
        return rows[..., :, None] * width + columns[..., None, :], row_in[..., :, None] & column_in[..., None, :]

    def take(self, index: Tensor) -> Patches:
        """Return the rectangles at indices (B, m) of each image."""
        return Patches(*(side.gather(1, index) for side in (self.top, self.left, self.height, self.width)))


def draw_patches(draws: Draws, count: int, height: int, width: int, *, shortest: int, longest: int) -> Patches:
    """Draw rectangles with sides uniform in shortest..longest (at most the image's), uniformly inside the image."""
    tall = draws.between(0, count, shortest, min(longest, height))
    wide = draws.between(1, count, shortest, min(longest, width))
    return Patches(_draw_positions(draws, 2, height - tall), _draw_positions(draws, 3, width - wide), tall, wide)


def _draw_positions(draws: Draws, purpose: int, room: Tensor) -> Tensor:
    """Draw uniform integers in 0..room, element by element."""
    bits = draws.bits(purpose, room.shape[1]).to(torch.int64).bitwise_and_(0xFFFFFFFF)
    return bits.mul_(room + 1).bitwise_right_shift_(32)


def assign_rounds(patches: Patches) -> Tensor:
    """Return the earliest round of each rectangle, (B, n), such that rounds have the same result as one after the other.

    A rectangle waits for every earlier one that it overlaps, so its round is the length of the longest such chain.
    """
    batch, count = patches.top.shape
    earlier, later = _overlaps(patches)
    rounds = patches.top.new_zeros(batch * count)
    while True:
        longer = torch.zeros_like(rounds).scatter_reduce_(0, later, rounds[earlier] + 1, "amax")
        if torch.equal(longer, rounds):
            return rounds.view(batch, count)
        rounds = longer


def _overlaps(patches: Patches) -> tuple[Tensor, Tensor]:
    """Return all pairs of rectangles of an image that share a pixel, earlier and later, as indices into the rectangles of
    all images.

    With rectangles sorted by their top edge, each can overlap only the few that follow before its bottom edge.
    """
    count = patches.top.shape[1]
    order = patches.top.argsort(1)
    low = patches.take(order)
    bottom = low.top + low.height
    below = torch.searchsorted(low.top, bottom) - torch.arange(count, device=order.device)
    most = max(1, int(below.max()) - 1)

    def successors(values: Tensor, beyond: int) -> Tensor:
        return pad(values, (0, most), value=beyond).unfold(1, most + 1, 1)[..., 1:]

    # int16 and no comparisons, because there are many pairs
    left, right = low.left.to(torch.int16), (low.left + low.width).to(torch.int16)
    across = torch.minimum(right[..., None], successors(right, 0)).sub_(torch.maximum(left[..., None], successors(left, 0)))
    down = bottom.to(torch.int16)[..., None] - successors(low.top.to(torch.int16), torch.iinfo(torch.int16).max)
    image, one, step = across.clamp_(0, 1).mul_(down.clamp_(0, 1)).nonzero().unbind(1)
    first, second = (order[image, rank] for rank in (one, one + 1 + step))
    return image * count + torch.minimum(first, second), image * count + torch.maximum(first, second)
