"""Rectangles of an image changed one after the other, and black boxes."""

from __future__ import annotations

import numpy as np
from numpy import uint8, uint16, uint32
from torch import Tensor, from_numpy

from brinell.kernels.cpu.compiled import kernel
from brinell.kernels.cpu.hashed_draws import draw_below, first_of

LONGEST, BOX = 10, 5  # longest sides of blurred rectangles and of boxes
LANES = 16  # pixels that are summed at once, at least those of the longest side
TALL, WIDE, TOP, LEFT = first_of(0), first_of(1), first_of(2), first_of(3)


def _reflections() -> np.ndarray:
    """Return which pixel of a side each offset from -2 on stands for, (side, offset), reflected as often as needed."""
    table = np.zeros((LONGEST + 1, LANES + 4), np.int64)
    for side in range(2, LONGEST + 1):
        turns = np.arange(-2, LANES + 2) % (2 * side - 2)
        table[side] = np.minimum(turns, 2 * side - 2 - turns)
    return table


REFLECTIONS = _reflections()


@kernel
def _draw_patch(key, number, height, width, longest):  # type: ignore[no-untyped-def]  # Numba infers types
    """Draw a rectangle as `draw_patches` does: top, left, height and width."""
    tall = draw_below(key, number, min(longest, height) - 1, TALL) + 2
    wide = draw_below(key, number, min(longest, width) - 1, WIDE) + 2
    return draw_below(key, number, height - tall + 1, TOP), draw_below(key, number, width - wide + 1, LEFT), tall, wide


@kernel
def _average(patch):  # type: ignore[no-untyped-def]
    """Replace a rectangle by its mean, rounded half to even."""
    area = patch.shape[0] * patch.shape[1]
    twice = 2 * int(patch.sum()) + area
    mean = twice // (2 * area)
    if twice % (2 * area) == 0 and mean % 2 == 1:
        mean -= 1
    patch[:] = uint8(mean)


@kernel
def _blur(patch, seen, across):  # type: ignore[no-untyped-def]
    """Blur a rectangle by a 5×5 box filter within its border. Sums in lanes beyond the border are discarded."""
    tall, wide = patch.shape
    rows, columns = REFLECTIONS[tall], REFLECTIONS[wide]
    for row in range(tall):
        own, sums = patch[row], across[row]
        for at in range(wide + 4):
            seen[at] = own[columns[at]]
        for at in range(LANES):
            sums[at] = seen[at] + seen[at + 1] + seen[at + 2] + seen[at + 3] + seen[at + 4]
    for row in range(tall):
        first, second, third = across[rows[row]], across[rows[row + 1]], across[rows[row + 2]]
        fourth, fifth = across[rows[row + 3]], across[rows[row + 4]]
        for at in range(LANES):  # a mean of 25 whole numbers is never half-way between two
            total = uint32(first[at]) + uint32(second[at]) + uint32(third[at]) + uint32(fourth[at]) + uint32(fifth[at])
            seen[at] = uint16((uint32(total + uint32(12)) * uint32(5243)) >> uint32(17))
        for at in range(wide):
            patch[row, at] = uint8(seen[at])


@kernel
def _blur_patches(images, keys, count, mean):  # type: ignore[no-untyped-def]
    height, width = images.shape[2:]
    seen, across = np.zeros(LANES + 4, np.uint16), np.zeros((LONGEST, LANES), np.uint16)
    for image in range(len(images)):
        for number in range(count):
            top, left, tall, wide = _draw_patch(keys[image], number, height, width, LONGEST)
            for channel in range(images.shape[1]):
                patch = images[image, channel, top : top + tall, left : left + wide]
                if mean:
                    _average(patch)
                else:
                    _blur(patch, seen, across)


def blur_patches(images: Tensor, keys: Tensor, count: int, *, mean: bool) -> Tensor:
    """Blur `count` drawn rectangles one after the other within their borders, or replace them by their mean colours.

    Images are (B, C, H, W), keys those of their draws.
    """
    made = np.array(images.numpy(), order="C")
    _blur_patches(made, keys.numpy().view(np.uint64), count, mean)
    return from_numpy(made)


@kernel
def _draw_boxes(images, keys, count, extra):  # type: ignore[no-untyped-def]
    height, width = images.shape[2:]
    for image in range(len(images)):
        for number in range(count):
            top, left, tall, wide = _draw_patch(keys[image], number, height, width, BOX)
            images[image, :, top : top + tall + extra, left : left + wide + extra] = 0


def draw_boxes(images: Tensor, keys: Tensor, count: int, *, extra: int) -> Tensor:
    """Draw `count` black boxes with sides of 2 to 5 pixels, and `extra` ones at the bottom and the right."""
    made = np.array(images.numpy(), order="C")
    _draw_boxes(made, keys.numpy().view(np.uint64), count, extra)
    return from_numpy(made)
