"""Lines and boxes drawn over the image (Swingler 2022)."""

from __future__ import annotations

import math
from functools import cache

import torch
from torch import Tensor

from brinell.draws import Draws
from brinell.kernels import kernels_for
from brinell.perturb.operator import Facts, step_operator
from brinell.perturb.papers import SWINGLER_2022
from brinell.perturb.patches import Patches, draw_patches

ONE = 1 << 16  # 1 in the fixed-point numbers of OpenCV's line drawing


def _line_facts(colour: str) -> Facts:
    return Facts(f"{colour} lines", "lines", lambda level, h, w: level, "local", "pixel", source=SWINGLER_2022)


@step_operator("black_lines", _line_facts("black"))
def black_lines(images: Tensor, draws: Draws) -> Tensor:
    """Draw one more thin black line from the left or top edge to the right or bottom edge."""
    return _draw_line(images, draws, 0)


@step_operator("white_lines", _line_facts("white"))
def white_lines(images: Tensor, draws: Draws) -> Tensor:
    """Draw one more thin white line from the left or top edge to the right or bottom edge."""
    return _draw_line(images, draws, 255)


def _draw_line(images: Tensor, draws: Draws, colour: int) -> Tensor:
    if kernels := kernels_for("lines", images):
        made: Tensor = kernels.draw_line(images, draws.keys, _tables(images.device), colour)
        return made
    height, width = images.shape[-2:]
    coins = draws.below(0, 2, 2)
    x, y = draws.below(1, 2, width), draws.below(2, 2, height)
    start_x, start_y = torch.where(coins[:, 0] == 0, 0, x[:, 0]), torch.where(coins[:, 0] == 0, y[:, 0], 0)
    end_x, end_y = torch.where(coins[:, 1] == 0, width, x[:, 1]), torch.where(coins[:, 1] == 0, y[:, 1], height)
    index, alpha = line_coverage(start_x, start_y, end_x, end_y, height, width)
    flat = images.flatten(2)
    index = index[:, None].expand(-1, flat.shape[1], -1)
    values = flat.gather(2, index.clamp(min=0)).to(torch.int32)
    for _ in range(2):  # OpenCV blends the colour in twice
        values += ((colour - values) * alpha[:, None] + 127) >> 8
    return _scatter(flat, index, values.to(torch.uint8)).view(images.shape)


def _scatter(flat: Tensor, index: Tensor, values: Tensor) -> Tensor:
    """Return a copy of (B, C, N) with values written at the non-negative indices."""
    out = torch.cat([flat, flat[..., :1]], 2)
    out.scatter_(2, torch.where(index < 0, flat.shape[2], index), values)
    return out[..., :-1]


def line_coverage(
    start_x: Tensor, start_y: Tensor, end_x: Tensor, end_y: Tensor, height: int, width: int
) -> tuple[Tensor, Tensor]:
    """Return the pixels of one anti-aliased line per image and their coverage, as OpenCV's LINE_AA has them.

    The start lies inside the image, the end inside or one pixel past the right or bottom edge. Returns flat pixel indices
    (-1: outside) and coverages out of 256, both (B, steps * 3): each step along the main axis covers three pixels across
    it, by a Gaussian of their distance to the line in 1/32 pixel.
    """
    x1, y1, x2, y2 = (value << 16 for value in (start_x, start_y, end_x, end_y))
    x2, y2 = _clip_end(x1, y1, x2, y2, (width << 16) - 1, (height << 16) - 1)
    wide = (x2 - x1).abs() > (y2 - y1).abs()
    main1, main2 = torch.where(wide, x1, y1), torch.where(wide, x2, y2)
    cross1, cross2 = torch.where(wide, y1, x1), torch.where(wide, y2, x2)
    back = main2 < main1
    main1, main2 = torch.where(back, main2, main1), torch.where(back, main1, main2)
    cross1, cross2 = torch.where(back, cross2, cross1), torch.where(back, cross1, cross2)

    slope = torch.div((cross2 - cross1) << 16, (main2 - main1) | 1, rounding_mode="trunc")
    main2 = main2 + ONE
    last = (main2 >> 16) - (main1 >> 16)
    cross = cross1 + ((slope * -(main1 & (ONE - 1))) >> 16) + ONE // 2

    count = torch.arange(max(height, width) + 2, device=x1.device)
    across = cross[:, None] + slope[:, None] * count
    distance = (across >> 11) & 31
    filters, slopes = _tables(x1.device)
    weight = filters[torch.stack([distance + 32, distance, 63 - distance], -1)]
    sixteenths = (slope >> 11) & 0x3F
    sixteenths = torch.where(slope < 0, sixteenths ^ 0x3F, sixteenths)
    full = torch.where(sixteenths >= 32, 256, slopes[sixteenths.clamp(max=31)])
    ends = _end_correction(full, (main1 >> 9) & 0x78, (main2 >> 9) & 0x78, count, last[:, None] - count)
    alpha = ((ends[..., None] * weight) >> 8) & 0xFF

    main = ((main1 >> 16)[:, None] + count)[..., None].expand_as(alpha)
    side = (across >> 16)[..., None] + torch.arange(-1, 2, device=x1.device)
    rows, columns = torch.where(wide[:, None, None], side, main), torch.where(wide[:, None, None], main, side)
    inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width) & (count <= last[:, None])[..., None]
    return torch.where(inside, rows * width + columns, -1).flatten(1), alpha.flatten(1)


def _clip_end(x1: Tensor, y1: Tensor, x2: Tensor, y2: Tensor, right: int, bottom: int) -> tuple[Tensor, Tensor]:
    """Move an end past the bottom or right edge along the line back to the edge."""
    low, far = y2 > bottom, x2 > right  # at most one of the two
    slide = ((bottom - y2).double() * (x2 - x1) / (y2 - y1).clamp(min=1)).trunc().to(x2.dtype)
    climb = ((right - x2).double() * (y2 - y1) / (x2 - x1).clamp(min=1)).trunc().to(y2.dtype)
    x2, y2 = torch.where(low, x2 + slide, x2), torch.where(far, y2 + climb, y2)
    return x2.clamp(max=right), y2.clamp(max=bottom)


def _end_correction(full: Tensor, first: Tensor, final: Tensor, since: Tensor, until: Tensor) -> Tensor:
    """Return the weight of each step: the slope's full weight, reduced near both ends by their fractions of a pixel."""
    full, first, final = full[:, None], first[:, None], final[:, None]
    head, tail = ((0x78 - first) | 4) * full, (final | 4) * full
    both, more = ((final - first) & 0x78 | 4) * full, ((final - first + 0x80) | 4) * full
    table = torch.cat(
        [torch.zeros_like(both), both, head, both, more, head + (full << 7), tail, tail + (full << 7), full << 8], 1
    )
    entry = since.clamp(max=2) * 3 + until.clamp(0, 2)
    return ((table >> 8) & 0x1FF).gather(1, entry)


@cache
def _tables(device: torch.device) -> tuple[Tensor, Tensor]:
    """Return weights by the distance from the line and by its slope, both in 1/32 (so slanted lines look equally thick).

    These closed forms reproduce the two tables in OpenCV's source exactly.
    """
    weight = [int(255 * math.exp(-(((d - 15.5) / 32 / 0.75) ** 2))) for d in range(64)]
    slopes = [int(256 * math.sqrt((1 + ((s + 0.5) / 32) ** 2) / 2)) for s in range(32)]
    return torch.tensor(weight, device=device), torch.tensor(slopes, device=device)


_BOXES = Facts("black boxes", "boxes", lambda level, h, w: level * ((w + h) // 10), "local", "pixel", source=SWINGLER_2022)


@step_operator("boxes", _BOXES)
def boxes(images: Tensor, draws: Draws) -> Tensor:
    """Draw (w+h)/10 more black boxes with sides of 3 to 6 pixels (sides of 2 to 5, drawn with both corners included)."""
    return _draw_boxes(images, draws, extra=1)


@step_operator("boxes", _BOXES, variant="paper")
def boxes_as_written(images: Tensor, draws: Draws) -> Tensor:
    """Draw (w+h)/10 more black boxes with sides of 2 to 5 pixels."""
    return _draw_boxes(images, draws, extra=0)


def _draw_boxes(images: Tensor, draws: Draws, extra: int) -> Tensor:
    height, width = images.shape[-2:]
    count = (height + width) // 10
    if kernels := kernels_for("patches", images):
        made: Tensor = kernels.draw_boxes(images, draws.keys, count, extra=extra)
        return made
    patches = draw_patches(draws, count, height, width, shortest=2, longest=5)
    grown = Patches(patches.top, patches.left, patches.height + extra, patches.width + extra)
    index, inside = grown.pixels(5 + extra, height, width)
    kept = torch.ones(len(images), height * width + 1, dtype=torch.uint8, device=images.device)
    kept.scatter_(1, index.masked_fill_(~inside, height * width).flatten(1), 0)
    return images * kept[:, None, :-1].view(-1, 1, height, width)
