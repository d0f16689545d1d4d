"""Kernels that make the random numbers of `brinell.draws`, in one pass."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy import int32, uint32, uint64
from torch import Tensor

from brinell.kernels.cpu.compiled import kernel
from brinell.kernels.cpu.hashed_draws import draw_bits

Kind = Literal["bits", "below", "uniform"]


@kernel
def _bits(keys, first, drawn):  # type: ignore[no-untyped-def]  # Numba infers types
    for image in range(len(keys)):
        for element in range(drawn.shape[1]):
            drawn[image, element] = int32(draw_bits(keys[image], element, first))


@kernel
def _below(keys, first, bound, low, drawn):  # type: ignore[no-untyped-def]
    for image in range(len(keys)):
        for element in range(drawn.shape[1]):
            bits = uint64(draw_bits(keys[image], element, first))
            drawn[image, element] = low + int((bits * uint64(bound)) >> uint64(32))


@kernel
def _uniform(keys, first, drawn):  # type: ignore[no-untyped-def]
    for image in range(len(keys)):
        for element in range(drawn.shape[1]):
            drawn[image, element] = (float(draw_bits(keys[image], element, first)) + 0.5) * 2.0**-32


def draw(keys: Tensor, first: int, count: int, kind: Kind, *, bound: int = 0, low: int = 0) -> Tensor:
    """Return `count` random numbers per key, int64 (B,): bits (int32), whole numbers (int64) or uniform ones (float64).

    The purpose is told by its `first` counter, as a signed number of 32 bits; whole numbers are in [low, low + bound).
    """
    each, start = keys.numpy().view(np.uint64), uint32(first & 0xFFFFFFFF)
    if kind == "bits":
        drawn = np.empty((len(each), count), np.int32)
        _bits(each, start, drawn)
    elif kind == "below":
        drawn = np.empty((len(each), count), np.int64)
        _below(each, start, bound, low, drawn)
    else:
        drawn = np.empty((len(each), count), np.float64)
        _uniform(each, start, drawn)
    return torch.from_numpy(drawn)


@kernel
def _mix(x):  # type: ignore[no-untyped-def]
    """The finaliser of splitmix64."""
    x = (x ^ (x >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> uint64(27))) * uint64(0x94D049BB133111EB)
    return x ^ (x >> uint64(31))


@kernel
def _keys(images, steps, key, stride, keys):  # type: ignore[no-untyped-def]
    for at in range(len(images)):
        step = steps[at if len(steps) > 1 else 0]
        keys[at] = _mix(_mix(images[at] + (step + uint64(1)) * stride) ^ key)


def keys_of(images: Tensor, key: int, step: int | Tensor, *, stride: int) -> Tensor:
    """Return a key per image id, int64 (B,), under a key, at one step or one per image; steps are `stride` apart."""
    given = images.contiguous().numpy().view(np.uint64)
    steps = step.contiguous().numpy() if isinstance(step, Tensor) else np.array([step], np.int64)
    keys = np.empty_like(given)
    _keys(given, steps.view(np.uint64), uint64(key & 0xFFFFFFFFFFFFFFFF), uint64(stride), keys)
    return torch.from_numpy(keys.view(np.int64))
