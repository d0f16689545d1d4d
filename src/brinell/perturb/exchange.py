"""Random noise and exchanged pixels (Swingler 2022)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from brinell.draws import Draws
from brinell.kernels import kernels_for
from brinell.perturb.operator import Facts, step_operator
from brinell.perturb.papers import SWINGLER_2022


@step_operator(
    "noise",
    Facts(
        "random noise", "pixels redrawn", lambda level, h, w: level * (w * h // 50), "local", "pixel", source=SWINGLER_2022
    ),
)
def noise(images: Tensor, draws: Draws) -> Tensor:
    """Give w·h/50 more pixels, drawn with replacement, a random colour."""
    batch, channels, height, width = images.shape
    area, count = height * width, height * width // 50
    if kernels := kernels_for("dots", images):
        made: Tensor = kernels.redraw(images, draws.keys, count)
        return made
    pixels, bits = draws.below(0, count, area), draws.bits(1, count)
    last = torch.full((batch, area), -1, dtype=torch.int32, device=images.device)
    last.scatter_reduce_(1, pixels, torch.arange(count, dtype=torch.int32, device=images.device).expand(batch, -1), "amax")
    # a pixel drawn twice gets its last colour; both draws write that colour, so that their order doesn't matter
    bits = bits.gather(1, last.gather(1, pixels).long())
    colours = torch.stack([(bits >> (8 * channel)) & 0xFF for channel in range(channels)], 1).to(torch.uint8)
    out = images.flatten(2).clone()
    return out.scatter_(2, pixels[:, None].expand(-1, channels, -1), colours).view(images.shape)


def _exchange_facts(title: str, count: Callable[[int, int], int]) -> Facts:
    return Facts(title, "exchanges", lambda level, h, w: level * count(h, w), "local", "pixel", source=SWINGLER_2022)


def _twentieth(height: int, width: int) -> int:
    """Return a twentieth of the pixels: the number of exchanges per level in the paper's text."""
    return max(1, width * height // 20)


def _published_count(height: int, width: int, share: int) -> int:
    return max(1, (width - 1) * (height - 1) // share)


_RANDOM, _ADJACENT = "random pixel exchange", "adjacent pixel exchange"


@step_operator("pixel_exchange", _exchange_facts(_RANDOM, partial(_published_count, share=20)))
def pixel_exchange(images: Tensor, draws: Draws) -> Tensor:
    """Copy the colour of a random pixel to another, (w-1)(h-1)/20 more times: the published swap copies one way."""
    height, width = images.shape[-2:]
    return _exchange(images, draws, _published_count(height, width, share=20), "random")


@step_operator("pixel_exchange", _exchange_facts(_RANDOM, _twentieth), variant="paper")
@step_operator("pixel_exchange", _exchange_facts(_RANDOM, _twentieth), variant="standard")
def swap_pixels(images: Tensor, draws: Draws) -> Tensor:
    """Swap the colours of w·h/20 more pairs of random pixels, as the paper's text says."""
    return _exchange(images, draws, _twentieth(*images.shape[-2:]), "random", swap=True)


@step_operator("adjacent_exchange", _exchange_facts(_ADJACENT, partial(_published_count, share=2)))
def adjacent_exchange(images: Tensor, draws: Draws) -> Tensor:
    """Copy the colour of a neighbour to (w-1)(h-1)/2 more pixels: ten times as many as the paper's text says."""
    height, width = images.shape[-2:]
    if min(height, width) == 1:  # the published code draws from all rows and columns but the last
        return images.clone()
    return _exchange(images, draws, _published_count(height, width, share=2), "published neighbours")


@step_operator("adjacent_exchange", _exchange_facts(_ADJACENT, _twentieth), variant="paper")
@step_operator("adjacent_exchange", _exchange_facts(_ADJACENT, _twentieth), variant="standard")
def swap_neighbours(images: Tensor, draws: Draws) -> Tensor:
    """Swap w·h/20 more pixels, each with one of its eight neighbours, as the paper's text says.

    At the border the neighbours are those inside the image.
    """
    return _exchange(images, draws, _twentieth(*images.shape[-2:]), "neighbours", swap=True)


def _exchange(images: Tensor, draws: Draws, count: int, pairs: str, *, swap: bool = False) -> Tensor:
    """Copy the colour of the second pixel of each pair to the first, or swap them, one pair after the other."""
    if kernels := kernels_for("exchange", images):
        made: Tensor = kernels.exchange(images, draws.keys, count, pairs, swap=swap)
        return made
    first, second = PAIRS[pairs](draws, count, *images.shape[-2:])
    return _replay(images, *(_both_ways(first, second) if swap else (first, second)))


def _random_pairs(draws: Draws, count: int, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Draw any two pixels of the image."""
    return draws.below(0, count, height * width), draws.below(1, count, height * width)


def _neighbours(draws: Draws, count: int, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Draw pixels and one of the up to eight neighbours of each; a single pixel is its own neighbour."""
    pixels = draws.below(0, count, height * width)
    x, y = pixels % width, pixels // width
    left, top = (x - 1).clamp(min=0), (y - 1).clamp(min=0)
    across, down = (x + 2).clamp(max=width) - left, (y + 2).clamp(max=height) - top
    # number the block of neighbours row by row, leaving out the pixel itself
    own = (y - top) * across + (x - left)
    bits = draws.bits(1, count).to(torch.int64).bitwise_and_(0xFFFFFFFF)
    chosen = bits.mul_(across * down - 1).bitwise_right_shift_(32)
    chosen += ((chosen >= own) & (across * down > 1)).to(torch.int64)
    return pixels, (top + chosen // across) * width + left + chosen % across


def _published_neighbours(draws: Draws, count: int, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Draw pixels in [0, w-2] × [0, h-2], and for each one a pixel of its 3×3 neighbourhood inside the image."""
    x, y = draws.below(0, count, width - 1), draws.below(1, count, height - 1)
    bits, target = draws.bits(2, count), y * width + x
    dx = _offset(bits & 0xFFFF, x)
    dy = _offset((bits >> 16) & 0xFFFF, y)
    return target, target + dy.mul_(width).add_(dx)


def _offset(bits16: Tensor, position: Tensor) -> Tensor:
    """Return -1, 0 or 1 (in the first row or column 0 or 1) from 16 random bits."""
    edge = (position == 0).to(torch.int32)
    return (3 - edge).mul_(bits16).bitwise_right_shift_(16).add_(edge).sub_(1)


# how the two pixels of an exchange are drawn
PAIRS = {"random": _random_pairs, "neighbours": _neighbours, "published neighbours": _published_neighbours}


def _both_ways(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor, int]:
    """Return swaps as pairs of simultaneous writes."""
    return torch.stack([first, second], 2).flatten(1), torch.stack([second, first], 2).flatten(1), 2


def _replay(images: Tensor, targets: Tensor, sources: Tensor, together: int = 1) -> Tensor:
    """Copy colours from the pixels `sources` to the pixels `targets` (B, n), one write after the other, without a loop.

    Groups of `together` writes are simultaneous. A write reads either the original image or the last earlier write to its
    source; following these links to their end finds the pixel of the original image that each colour comes from.
    """
    batch, channels, height, width = images.shape
    area, count = height * width, targets.shape[1]
    # the writes and pixels of all images in one list, image after image
    image = torch.arange(batch, device=images.device)[:, None]
    writes, reads = (targets + image * area).flatten(), (sources + image * area).flatten()
    times = torch.arange(batch * count, dtype=torch.int32, device=images.device)
    moments = times if together == 1 else times - times % together

    link, last = _last_writes_before(writes, reads, times, moments, batch * area)
    origin = reads.index_select(0, _roots(link))
    # a pixel written twice keeps its last colour; both writes use that colour, so that their order doesn't matter
    origin = origin.index_select(0, last.index_select(0, writes)).view(batch, count) - image * area
    flat = images.flatten(2)
    colours = flat.gather(2, origin[:, None].expand(-1, channels, -1))
    return flat.clone().scatter_(2, targets[:, None].expand(-1, channels, -1), colours).view(images.shape)


def _last_writes_before(
    writes: Tensor, reads: Tensor, times: Tensor, moments: Tensor, pixels: int
) -> tuple[Tensor, Tensor]:
    """Return the last write before each moment to the pixel it reads (-1: none), and the last write of all to each pixel.

    Most moments lie before the first or after the last write to their pixel, and are resolved at once. The others are
    looked up among the writes in between, until none is left: few pixels are written more than twice.
    """
    never = torch.iinfo(times.dtype).max
    first = torch.full((pixels,), never, dtype=times.dtype, device=times.device)
    last = torch.full_like(first, -1)
    link = torch.full_like(times, -1)
    pending = torch.arange(len(times), device=times.device)
    overall = None
    while True:
        first.scatter_reduce_(0, writes, times, "amin")
        last.scatter_reduce_(0, writes, times, "amax")
        overall = last.clone() if overall is None else overall
        now, pixel = moments.index_select(0, pending), reads.index_select(0, pending)
        low, high = first.index_select(0, pixel), last.index_select(0, pixel)
        found = torch.maximum(low.masked_fill(low >= now, -1), high.masked_fill(high >= now, -1))
        link.index_copy_(0, pending, torch.maximum(link.index_select(0, pending), found))
        pending = pending.index_select(0, ((low < now) & (high >= now)).nonzero()[:, 0])
        if len(pending) == 0:
            return link, overall
        between = (first.index_select(0, writes) < times) & (times < last.index_select(0, writes))
        # reset the pixels of the next round
        for used in (writes, reads.index_select(0, pending)):
            first.index_fill_(0, used, never)
            last.index_fill_(0, used, -1)
        rest = between.nonzero()[:, 0]
        writes, times = writes.index_select(0, rest), times.index_select(0, rest)


def _roots(link: Tensor) -> Tensor:
    """Return the write at the end of each chain of links (-1 ends it), in log2(longest chain) rounds."""
    root = torch.arange(len(link), dtype=link.dtype, device=link.device)
    moving = (link >= 0).nonzero()[:, 0]
    root[moving] = link[moving]
    while len(moving):
        up = root[moving]
        further = root[up]
        root[moving] = further
        moving = moving[further != up]
    return root
