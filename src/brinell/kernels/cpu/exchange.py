"""Exchanged pixels: pairs are drawn a run at a time, and replayed in order while they are in the core's cache."""

from __future__ import annotations

import numpy as np
from numpy import int32, uint32
from torch import Tensor, from_numpy

from brinell.kernels.cpu.compiled import kernel
from brinell.kernels.cpu.hashed_draws import draw_below, draw_bits, first_of

RUN = 512  # pairs
FIRST, SECOND, OFFSETS = first_of(0), first_of(1), first_of(2)
PAIRS = ("random", "neighbours", "published neighbours")
RANDOM, NEIGHBOURS = 0, 1  # places in PAIRS


@kernel
def _offset(bits16, position):  # type: ignore[no-untyped-def]  # Numba infers types
    edge = int32(position == 0)
    return int32((bits16 * uint32(3 - edge)) >> uint32(16)) - 1 + edge


@kernel
def _around(key, pair, first, height, width):  # type: ignore[no-untyped-def]
    """Draw one of the up to eight neighbours of a pixel."""
    x, y = first % width, first // width
    left, top = max(x - 1, 0), max(y - 1, 0)
    across, down = min(x + 2, width) - left, min(y + 2, height) - top
    own = (y - top) * across + (x - left)
    chosen = draw_below(key, pair, across * down - 1, SECOND)
    if chosen >= own and across * down > 1:
        chosen += 1
    return (top + chosen // across) * width + left + chosen % across


@kernel
def _draw_pairs(key, start, height, width, pairs, targets, sources):  # type: ignore[no-untyped-def]
    """Draw both pixels of exchanges from `start` on, as the functions of these names in `perturb.exchange` do."""
    area = height * width
    if pairs == RANDOM:
        for at in range(len(targets)):
            targets[at] = draw_below(key, start + at, area, FIRST)
            sources[at] = draw_below(key, start + at, area, SECOND)
    elif pairs == NEIGHBOURS:
        for at in range(len(targets)):
            first = draw_below(key, start + at, area, FIRST)
            targets[at], sources[at] = first, _around(key, start + at, first, height, width)
    else:
        for at in range(len(targets)):
            x = int32(draw_below(key, start + at, width - 1, FIRST))
            y = int32(draw_below(key, start + at, height - 1, SECOND))
            bits = draw_bits(key, start + at, OFFSETS)
            first = y * int32(width) + x
            down = _offset(bits >> uint32(16), y)
            targets[at], sources[at] = first, first + down * int32(width) + _offset(bits & uint32(0xFFFF), x)


@kernel
def _exchange(images, keys, count, height, width, pairs, swap):  # type: ignore[no-untyped-def]
    targets, sources = np.empty(RUN, np.int32), np.empty(RUN, np.int32)
    for image in range(len(images)):
        for start in range(0, count, RUN):
            size = min(RUN, count - start)
            _draw_pairs(keys[image], start, height, width, pairs, targets[:size], sources[:size])
            for channel in range(images.shape[1]):
                plane = images[image, channel]
                for at in range(size):
                    target, source = targets[at], sources[at]
                    old = plane[target]
                    plane[target] = plane[source]
                    if swap:
                        plane[source] = old


def exchange(images: Tensor, keys: Tensor, count: int, pairs: str, *, swap: bool) -> Tensor:
    """Copy colours from the second to the first pixel of `count` drawn pairs, or swap them, one pair after the other.

    `pairs` says how they are drawn. Images are (B, C, H, W), keys those of their draws.
    """
    height, width = images.shape[2:]
    made = np.array(images.flatten(2).numpy(), order="C")
    _exchange(made, keys.numpy().view(np.uint64), count, height, width, PAIRS.index(pairs), swap)
    return from_numpy(made).view(images.shape)
