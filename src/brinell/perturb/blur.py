"""Blur over the whole image and in small rectangles (seed 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, pad

from brinell.draws import Draws
from brinell.perturb.operator import Facts, step_operator
from brinell.perturb.papers import SWINGLER_2022
from brinell.perturb.patches import Patches, assign_rounds, draw_patches

LONGEST = 10  # the longest side of a rectangle of local blur


@step_operator(
    "global_blur",
    Facts("global blur", "5×5 convolutions", lambda level, h, w: level, "global", "pixel", source=SWINGLER_2022),
)
def global_blur(images: Tensor) -> Tensor:
    """One more 5×5 box mean, border reflect-101, rounded to whole grey levels."""
    if images.device.type != "cpu":  # where a pool reads the image once; on a CPU it does so 25 times
        framed = pad(images.to(torch.float32), (2, 2, 2, 2), mode="reflect")
        return _twenty_fifth(avg_pool2d(framed, 5, stride=1, divisor_override=1)).to(torch.uint8)
    wide = images.to(torch.int16)
    tall = torch.cat([wide[..., 2:3, :], wide[..., 1:2, :], wide, wide[..., -2:-1, :], wide[..., -3:-2, :]], -2)
    rows = _five_sums(tall, -2)
    long = torch.cat([rows[..., 2:3], rows[..., 1:2], rows, rows[..., -2:-1], rows[..., -3:-2]], -1)
    return _twenty_fifth(_five_sums(long, -1)).to(torch.uint8)


def _five_sums(values: Tensor, dim: int) -> Tensor:
    """Sums of five neighbours along an axis, which becomes four shorter."""
    count = values.shape[dim] - 4
    total = values.narrow(dim, 0, count) + values.narrow(dim, 1, count)
    for shift in range(2, 5):
        total += values.narrow(dim, shift, count)
    return total


def _twenty_fifth(sums: Tensor) -> Tensor:
    # no sum of 25 whole numbers lies half way between two means, so float rounding is exact
    return sums.to(torch.float32).mul_(1 / 25).round_()


_LOCAL = Facts("local blur", "small boxes", lambda level, h, w: level * (w + h), "local", "pixel", source=SWINGLER_2022)


@step_operator("local_blur", _LOCAL)
def local_blur(images: Tensor, draws: Draws) -> Tensor:
    """w+h more rectangles of 2 to 10 pixels a side, each blurred 5×5 inside itself (reflect-101 at its own border)."""

    def blurred(window: Window, patches: Patches) -> Tensor:
        taps = window(_reflected(patches.height), _reflected(patches.width))
        return _each_channel(_five_sums(_five_sums(taps, 0), 1), images.shape[1], _twenty_fifth)

    return _replace_patches(images, draws, blurred)


@step_operator("local_blur", _LOCAL, variant="paper")
def local_blur_as_written(images: Tensor, draws: Draws) -> Tensor:
    """w+h more rectangles of 2 to 10 pixels a side, each replaced by its mean."""

    def averaged(window: Window, patches: Patches) -> Tensor:
        pixels = window(_within(patches.height), _within(patches.width))
        area = (patches.height * patches.width).to(torch.float32)
        mean = _each_channel(pixels.sum((0, 1)), images.shape[1], lambda sums: sums.to(torch.float32).div_(area).round_())
        return mean.expand(LONGEST, LONGEST, -1, -1)

    return _replace_patches(images, draws, averaged)


# pixels (rows, columns, B, m) of m rectangles an image, by offsets (rows, B, m) and (columns, B, m) in them
Window = Callable[[Tensor, Tensor], Tensor]
OUTSIDE = 1 << 20  # an offset past any image: what is read there is black


def _replace_patches(images: Tensor, draws: Draws, change: Callable[[Window, Patches], Tensor]) -> Tensor:
    """Change rectangle after rectangle; later ones see what earlier ones did.

    `change` gives the new pixels (10, 10, B, m) of m rectangles an image, of which each keeps as many as it has.
    Rectangles that don't wait for each other go in one round. The rectangles lie along the last axes, so that sums over
    their rows and columns are sums of long vectors.
    """
    batch, channels, height, width = images.shape
    area = height * width
    patches = draw_patches(draws, height + width, height, width, shortest=2, longest=LONGEST)
    # each image has one black pixel more, which stands for all that lies outside
    flat = pad(_packed(images.unbind(1)).flatten(1), (0, 1)).flatten()
    plane = torch.arange(batch, dtype=torch.int32, device=images.device)[:, None] * (area + 1)
    for part, taken in _rounds(patches):

        def places(rows: Tensor, columns: Tensor, part: Patches = part) -> Tensor:
            down, along = ((part.top + rows) * width).to(torch.int32), (part.left + columns).to(torch.int32)
            return (down[:, None] + along).clamp_(max=area).add_(plane)

        def window(rows: Tensor, columns: Tensor, places: Window = places) -> Tensor:
            index = places(rows, columns)
            return flat.index_select(0, index.flatten()).view(index.shape)

        new = change(window, part)
        index = places(_within(part.height * taken), _within(part.width * taken))
        flat.scatter_(0, index.flatten().long(), new.flatten())
        flat.view(batch, -1)[:, area] = 0
    return _unpacked(flat.view(batch, -1)[:, :area], channels).view(images.shape)


_BITS = 16  # of a number that hold one channel: sums of 100 values fit


def _packed(channels: Sequence[Tensor]) -> Tensor:
    """The channels of every pixel in one int64, so that sums of pixels are sums of all channels at once."""
    pixels = channels[0].to(torch.int64)
    for place, values in enumerate(channels[1:], 1):
        pixels = pixels.add_(values, alpha=1 << _BITS * place)
    return pixels


def _unpacked(pixels: Tensor, channels: int) -> Tensor:
    """Packed pixels (B, …) as uint8 (B, C, …); what doesn't fit in eight bits, the other channels, falls away."""
    return torch.stack([(pixels >> _BITS * place).to(torch.uint8) for place in range(channels)], 1)


def _each_channel(pixels: Tensor, channels: int, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Packed pixels with each channel changed."""
    parts = ((pixels >> _BITS * place).bitwise_and_((1 << _BITS) - 1) for place in range(channels))
    return _packed([change(part).to(torch.int32) for part in parts])


def _rounds(patches: Patches) -> Iterator[tuple[Patches, Tensor]]:
    """The rectangles round by round, as many for each image as the fullest one has, and which of them are real."""
    wave = assign_rounds(patches)
    order = wave.argsort(dim=1, stable=True)
    counts = torch.stack([(wave == number).sum(1) for number in range(int(wave.max()) + 1)], 1)
    starts = counts.cumsum(1) - counts
    for number, most in enumerate(counts.amax(0).tolist()):
        slot = torch.arange(most, device=wave.device)
        places = (starts[:, number, None] + slot).clamp(max=order.shape[1] - 1)
        yield patches.take(order.gather(1, places)), slot < counts[:, number, None]


def _within(side: Tensor) -> Tensor:
    """The offsets 0..9 where they lie within a side (B, m), and OUTSIDE where not, (10, B, m)."""
    offsets = torch.arange(LONGEST, device=side.device)[:, None, None]
    return torch.where(offsets < side, offsets, OUTSIDE)


def _reflected(side: Tensor) -> Tensor:
    """The places in a side (B, m) that offsets -2..11 fall on, reflected at both ends as often as needed, (14, B, m)."""
    return _reflections(side.device).index_select(1, side.flatten()).view(-1, *side.shape)


@cache
def _reflections(device: torch.device) -> Tensor:
    table = torch.zeros(LONGEST + 4, LONGEST + 1, dtype=torch.int64)
    for side in range(2, LONGEST + 1):
        for place, offset in enumerate(range(-2, LONGEST + 2)):
            turn = offset % (2 * side - 2)
            table[place, side] = min(turn, 2 * side - 2 - turn)
    return table.to(device)
