"""Blur of the whole image and of small rectangles (Swingler 2022)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache

import cv2
import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, pad

from brinell.draws import Draws
from brinell.kernels import kernels_for
from brinell.perturb.operator import Facts, step_operator
from brinell.perturb.papers import SWINGLER_2022
from brinell.perturb.patches import Patches, assign_rounds, draw_patches

LONGEST = 10  # longest side of a rectangle in local blur, pixels


@step_operator(
    "global_blur",
    Facts("global blur", "passes of a 5×5 blur", lambda level, h, w: level, "global", "pixel", source=SWINGLER_2022),
)
def global_blur(images: Tensor) -> Tensor:
    """Blur once more with a 5×5 box filter (border reflect-101, rounded to whole grey levels)."""
    if images.device.type == "cpu":
        return _blur_by_opencv(images)
    kernels = kernels_for("box_blur", images)
    if kernels is not None:
        made: Tensor = kernels.blur(images)
        return made
    framed = pad(images.to(torch.float32), (2, 2, 2, 2), mode="reflect")
    return _round_mean_of_25(avg_pool2d(framed, 5, stride=1, divisor_override=1)).to(torch.uint8)


def _blur_by_opencv(images: Tensor) -> Tensor:
    """Blur each channel of each image; a mean of 25 whole numbers has one rounding, so it is the same everywhere."""
    planes = images.contiguous().flatten(0, 1).numpy()
    made = np.empty_like(planes)
    for plane, target in zip(planes, made, strict=True):
        cv2.blur(plane, (5, 5), dst=target, borderType=cv2.BORDER_REFLECT_101)
    return torch.from_numpy(made).view(images.shape)


def _five_sums(values: Tensor, dim: int) -> Tensor:
    """Return the sums of five neighbours along an axis, which gets four elements shorter."""
    count = values.shape[dim] - 4
    total = values.narrow(dim, 0, count) + values.narrow(dim, 1, count)
    for shift in range(2, 5):
        total += values.narrow(dim, shift, count)
    return total


def _round_mean_of_25(sums: Tensor) -> Tensor:
    # a mean of 25 whole numbers is never half-way between two whole numbers, so float rounding is exact
    return sums.to(torch.float32).mul_(1 / 25).round_()


_LOCAL = Facts("local blur", "blurred boxes", lambda level, h, w: level * (w + h), "local", "pixel", source=SWINGLER_2022)


@step_operator("local_blur", _LOCAL)
def local_blur(images: Tensor, draws: Draws) -> Tensor:
    """Blur w + h more rectangles with sides of 2 to 10 pixels, each with a 5×5 box filter within its own border."""
    if min(images.shape[-2:]) < 2:
        return images.clone()
    if kernels := kernels_for("patches", images):
        made: Tensor = kernels.blur_patches(images, draws.keys, sum(images.shape[-2:]), mean=False)
        return made

    def blur(window: Window, patches: Patches) -> Tensor:
        taps = window(_reflect(patches.height), _reflect(patches.width))
        return _map_channels(_five_sums(_five_sums(taps, 0), 1), images.shape[1], _round_mean_of_25)

    return _replace_patches(images, draws, blur)


@step_operator("local_blur", _LOCAL, variant="paper")
def local_blur_as_written(images: Tensor, draws: Draws) -> Tensor:
    """Replace w + h more rectangles with sides of 2 to 10 pixels by their mean colour."""
    if min(images.shape[-2:]) < 2:
        return images.clone()
    if kernels := kernels_for("patches", images):
        made: Tensor = kernels.blur_patches(images, draws.keys, sum(images.shape[-2:]), mean=True)
        return made

    def average(window: Window, patches: Patches) -> Tensor:
        pixels = window(_within(patches.height), _within(patches.width))
        area = (patches.height * patches.width).to(torch.float32)
        mean = _map_channels(pixels.sum((0, 1)), images.shape[1], lambda sums: sums.to(torch.float32).div_(area).round_())
        return mean.expand(LONGEST, LONGEST, -1, -1)

    return _replace_patches(images, draws, average)


# offsets (rows, B, m) and (columns, B, m) within m rectangles per image, to their pixels (rows, columns, B, m)
Window = Callable[[Tensor, Tensor], Tensor]
OUTSIDE = 1 << 20  # an offset beyond any image, where pixels are black


def _replace_patches(images: Tensor, draws: Draws, change: Callable[[Window, Patches], Tensor]) -> Tensor:
    """Change the rectangles one after the other; each sees the changes of those before it.

    `change` returns the new pixels (10, 10, B, m) of m rectangles per image; a smaller rectangle uses a corner of them.
    Rectangles that don't depend on each other are changed in one round. They lie along the last axes, so that sums over
    rows and columns are sums of long vectors.
    """
    batch, channels, height, width = images.shape
    area = height * width
    patches = draw_patches(draws, height + width, height, width, shortest=2, longest=LONGEST)
    # one extra black pixel per image stands for everything outside
    flat = pad(_pack(images.unbind(1)).flatten(1), (0, 1)).flatten()
    plane = torch.arange(batch, dtype=torch.int32, device=images.device)[:, None] * (area + 1)
    for part, real in _rounds(patches):

        def indices(rows: Tensor, columns: Tensor, part: Patches = part) -> Tensor:
            down, along = ((part.top + rows) * width).to(torch.int32), (part.left + columns).to(torch.int32)
            return (down[:, None] + along).clamp_(max=area).add_(plane)

        def window(rows: Tensor, columns: Tensor, indices: Window = indices) -> Tensor:
            index = indices(rows, columns)
            return flat.index_select(0, index.flatten()).view(index.shape)

        new = change(window, part)
        index = indices(_within(part.height * real), _within(part.width * real))
        flat.scatter_(0, index.flatten().long(), new.flatten())
        flat.view(batch, -1)[:, area] = 0
    return _unpack(flat.view(batch, -1)[:, :area], channels).view(images.shape)


_BITS = 16  # bits per packed channel: the sum of 100 values fits


def _pack(channels: Sequence[Tensor]) -> Tensor:
    """Pack the channels of every pixel into one int64, so that one sum adds up all channels."""
    pixels = channels[0].to(torch.int64)
    for number, values in enumerate(channels[1:], 1):
        pixels = pixels.add_(values, alpha=1 << _BITS * number)
    return pixels


def _unpack(pixels: Tensor, channels: int) -> Tensor:
    """Return packed pixels (B, …) as uint8 (B, C, …); the conversion drops the bits of the other channels."""
    return torch.stack([(pixels >> _BITS * number).to(torch.uint8) for number in range(channels)], 1)


def _map_channels(pixels: Tensor, channels: int, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply a function to each channel of packed pixels."""
    parts = ((pixels >> _BITS * number).bitwise_and_((1 << _BITS) - 1) for number in range(channels))
    return _pack([change(part).to(torch.int32) for part in parts])


def _rounds(patches: Patches) -> Iterator[tuple[Patches, Tensor]]:
    """Yield the rectangles of each round, padded to the same number per image, and a mask of the real ones."""
    rounds = assign_rounds(patches)
    order = rounds.argsort(dim=1, stable=True)
    counts = torch.stack([(rounds == number).sum(1) for number in range(int(rounds.max()) + 1)], 1)
    starts = counts.cumsum(1) - counts
    for number, most in enumerate(counts.amax(0).tolist()):
        slot = torch.arange(most, device=rounds.device)
        index = (starts[:, number, None] + slot).clamp(max=order.shape[1] - 1)
        yield patches.take(order.gather(1, index)), slot < counts[:, number, None]


def _within(side: Tensor) -> Tensor:
    """Return the offsets 0..9, or OUTSIDE where they exceed a side (B, m), as (10, B, m)."""
    offsets = torch.arange(LONGEST, device=side.device)[:, None, None]
    return torch.where(offsets < side, offsets, OUTSIDE)


def _reflect(side: Tensor) -> Tensor:
    """Reflect the offsets -2..11 into a side (B, m), as often as needed at both ends, (14, B, m)."""
    return _reflections(side.device).index_select(1, side.flatten()).view(-1, *side.shape)


@cache
def _reflections(device: torch.device) -> Tensor:
    table = torch.zeros(LONGEST + 4, LONGEST + 1, dtype=torch.int64)
    for side in range(2, LONGEST + 1):
        for row, offset in enumerate(range(-2, LONGEST + 2)):
            turn = offset % (2 * side - 2)
            table[row, side] = min(turn, 2 * side - 2 - turn)
    return table.to(device)
