"""Blur over the whole image and in small rectangles (seed 1)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import pad

from brinell.draws import Draws
from brinell.perturb.operator import Facts, step
from brinell.perturb.patches import draw_patches, waves

LONGEST = 10  # the longest side of a rectangle of local blur


@step(
    "global_blur",
    Facts("global blur", "5×5 convolutions", lambda level, h, w: level, "global", "pixel"),
)
def global_blur(images: Tensor) -> Tensor:
    """One more 5×5 box mean, border reflect-101, rounded to whole grey levels."""
    padded = pad(images.to(torch.float32), (2, 2, 2, 2), mode="reflect")
    height, width = images.shape[-2:]
    rows = padded[..., :height, :].clone()
    for shift in range(1, 5):
        rows += padded[..., shift : shift + height, :]
    total = rows[..., :width].clone()
    for shift in range(1, 5):
        total += rows[..., shift : shift + width]
    # no sum of 25 whole numbers lies half way between two means, so float rounding is exact
    return total.mul_(1 / 25).round_().to(torch.uint8)


_LOCAL = Facts("local blur", "small boxes", lambda level, h, w: level * (w + h), "local", "pixel")


@step("local_blur", _LOCAL)
def local_blur(images: Tensor, draws: Draws) -> Tensor:
    """w+h more rectangles of 2 to 10 pixels a side, each blurred 5×5 inside itself (reflect-101 at its own border)."""
    sums = _five_wide_sums(images.device)

    def blurred(pixels: Tensor, heights: Tensor, widths: Tensor) -> Tensor:
        down = (sums[heights] @ pixels.flatten(-2)).view(pixels.shape).flatten(-3, -2)
        return (down @ sums[widths].mT.contiguous()).view(pixels.shape).div_(25).round_()

    return _replace_patches(images, draws, blurred)


@step("local_blur", _LOCAL, semantics="paper")
def local_blur_as_written(images: Tensor, draws: Draws) -> Tensor:
    """w+h more rectangles of 2 to 10 pixels a side, each replaced by its mean."""

    def averaged(pixels: Tensor, heights: Tensor, widths: Tensor) -> Tensor:
        mean = pixels.sum((-3, -1)) / (heights * widths)[..., None]
        return mean.round_()[..., None, :, None].expand_as(pixels)

    return _replace_patches(images, draws, averaged)


def _replace_patches(images: Tensor, draws: Draws, change: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
    """Change rectangle after rectangle; later ones see what earlier ones did.

    `change` takes m rectangles an image as pixels (B, m, rows, C, columns), zero outside the rectangle, and their heights
    and widths (B, m), and gives whole numbers back. Rectangles that don't wait for each other go in one round.
    """
    batch, channels, height, width = images.shape
    area = height * width
    patches = draw_patches(draws, height + width, height, width, shortest=2, longest=LONGEST)
    wave = waves(patches)
    order = wave.argsort(dim=1, stable=True)
    counts = torch.stack([(wave == number).sum(1) for number in range(int(wave.max()) + 1)], 1)
    starts = counts.cumsum(1) - counts
    # each channel gets one black pixel more: what lies outside a rectangle is read there
    flat = torch.cat([images.flatten(2), images.new_zeros(batch, channels, 1)], 2).flatten(1)
    channel = torch.arange(channels, device=images.device)[:, None] * (area + 1)
    for number, most in enumerate(counts.amax(0).tolist()):
        slot = torch.arange(most, device=images.device)
        taken = slot < counts[:, number, None]
        part = patches.take(order.gather(1, (starts[:, number, None] + slot).clamp(max=order.shape[1] - 1)))
        index, inside = part.pixels(LONGEST, height, width)
        index = index.masked_fill_(~(inside & taken[..., None, None]), area)
        index = (index[..., None, :] + channel).flatten(1)
        pixels = flat.gather(1, index).view(batch, most, LONGEST, channels, LONGEST).to(torch.float32)
        mixed = change(pixels, part.height, part.width).to(torch.uint8)
        flat.scatter_(1, index, mixed.flatten(1))
        flat.view(batch, channels, -1)[..., area] = 0
    return flat.view(batch, channels, -1)[..., :area].reshape(images.shape)


@cache
def _five_wide_sums(device: torch.device) -> Tensor:
    """For each side length the matrix that sums five neighbours along it, border reflect-101 as often as needed."""
    table = torch.zeros(LONGEST + 1, LONGEST, LONGEST)
    for side in range(2, LONGEST + 1):
        for place in range(side):
            for tap in range(place - 2, place + 3):
                turn = tap % (2 * side - 2)
                table[side, place, min(turn, 2 * side - 2 - turn)] += 1
    return table.to(device)
