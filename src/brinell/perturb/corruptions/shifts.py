"""Weighted sums of shifted images on a CPU, by OpenCV; other devices add shifted images in tensors.

Images and weights are whole numbers, or such numbers times a power of two, with sums that float32 holds exactly in any
order. So results depend neither on the library nor on the processor or device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import cv2
import numpy as np
from torch import Tensor

# OpenCV filters by a Fourier transform, which isn't exact, from 130 weights on, or from 50 on where there is no SSE3
_SSE3 = 3
MOST = 129 if cv2.checkHardwareSupport(_SSE3) else 49

Shift = tuple[int, int]  # down and along
Part = tuple[Shift, np.ndarray]  # where weights begin, and they themselves, float32


def add_shifted(images: Tensor, parts: Sequence[Part], border: int, out: Tensor) -> None:
    """Write sums over weighted shifts of images (C, H, W), with one of OpenCV's borders."""
    height, width = images.shape[1:]
    top, left = (max(0, *(-first[axis] for first, _ in parts)) for axis in (0, 1))
    bottom, right = (max(0, *(first[axis] + part.shape[axis] - 1 for first, part in parts)) for axis in (0, 1))
    for plane, target in zip(images.numpy(), out.numpy(), strict=True):
        framed = cv2.copyMakeBorder(plane, top, bottom, left, right, border)
        sums = []
        for (down, along), part in parts:
            source = framed[top + down :, left + along :][: height + len(part) - 1, : width + part.shape[1] - 1]
            sums.append(cv2.filter2D(source, -1, part, anchor=(0, 0))[:height, :width])
        total = sums[0]
        for found in sums[1:]:
            total = cv2.add(total, found, dst=target)
        if total is sums[0]:
            target[:] = total


def add_many(images: Tensor, weights: np.ndarray, border: int, out: Tensor) -> None:
    """Write sums over many weights (2·reach + 1)² around each pixel of images (C, H, W), both whole numbers.

    By Fourier transforms in float64, whose errors are far below the half that rounding removes.
    """
    height, width = images.shape[1:]
    reach = len(weights) // 2
    tall, wide = (cv2.getOptimalDFTSize(side + 2 * reach) for side in (height, width))
    spectrum = _spectrum(weights.tobytes(), len(weights), tall, wide)
    framed = np.zeros((tall, wide))
    for plane, target in zip(images.numpy(), out.numpy(), strict=True):
        framed[: height + 2 * reach, : width + 2 * reach] = cv2.copyMakeBorder(plane, reach, reach, reach, reach, border)
        product = cv2.mulSpectrums(cv2.dft(framed, nonzeroRows=height + 2 * reach), spectrum, 0)
        sums = cv2.dft(product, flags=cv2.DFT_INVERSE)
        np.rint(sums[reach : reach + height, reach : reach + width], out=target, casting="same_kind")


@lru_cache(32)
def _spectrum(weights: bytes, side: int, tall: int, wide: int) -> np.ndarray:
    """Return the Fourier transform of weights around the origin of a torus, scaled for the way back."""
    around = np.zeros((tall, wide))
    around[:side, :side] = np.frombuffer(weights, np.float32).reshape(side, side)[::-1, ::-1]
    spectrum: np.ndarray = cv2.dft(np.roll(around, -(side // 2), (0, 1))) / (tall * wide)
    return spectrum


def cut(weights: np.ndarray, first: Shift) -> Iterator[Part]:
    """Yield weights (h, w) in parts that OpenCV sums up exactly, without zeros around them."""
    rows, columns = (np.flatnonzero(weights.any(axis)) for axis in (1, 0))
    if not len(rows):
        return
    found = weights[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    down, along = first[0] + int(rows[0]), first[1] + int(columns[0])
    if found.size <= MOST:
        yield (down, along), np.ascontiguousarray(found, np.float32)
    elif found.shape[0] >= found.shape[1]:
        middle = found.shape[0] // 2
        yield from cut(found[:middle], (down, along))
        yield from cut(found[middle:], (down + middle, along))
    else:
        middle = found.shape[1] // 2
        yield from cut(found[:, :middle], (down, along))
        yield from cut(found[:, middle:], (down, along + middle))


def cut_line(down: Sequence[int], along: Sequence[int], weights: Sequence[float]) -> list[Part]:
    """Return the weights of single shifts in parts."""
    y, x = np.array(down), np.array(along)
    dense = np.zeros((int(np.ptp(y)) + 1, int(np.ptp(x)) + 1), np.float32)
    np.add.at(dense, (y - y.min(), x - x.min()), np.array(weights, np.float32))
    return list(cut(dense, (int(y.min()), int(x.min()))))
