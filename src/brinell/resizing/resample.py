"""Resizing images exactly as Pillow does, to the bit, on any device.

Networks were trained on images resized by Pillow or compatible libraries, and some predictions change with less than its
rounding. Pillow resamples in two passes, horizontal then vertical, each a weighted sum with integer weights of 22 bits,
rounded to bytes. On a CPU Pillow itself is called, once per pass: from version 13 on it makes the vertical pass first where
an image shrinks more in height than in width, so the bytes of an upright photograph would depend on the version. On a CUDA
device a kernel computes integer sums (`kernels`); on other devices both passes are products with a matrix of weights, which
are exact in float64. So every device and batch size gives the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache
from types import ModuleType
from typing import Literal

import cv2
import numpy as np
import torch
from PIL import Image
from torch import Tensor

from brinell.resizing.plans import LightPlan, WindowPlan
from brinell.types import Interpolation

BITS = 22  # bits of a weight
_PILLOW = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
    "box": Image.Resampling.BOX,
}
Filter = Interpolation | Literal["box"]
Box = tuple[int, int, int, int]


def resize(images: Tensor, height: int, width: int, how: Filter = "bilinear", box: Box | None = None) -> Tensor:
    """Resize uint8 images (N, C, H, W), after cropping to `box` (left, top, right, bottom) if given."""
    if box is not None:
        left, top, right, bottom = box
        images = images[..., top:bottom, left:right]
    if images.shape[2:] == (height, width):
        return images
    if images.device.type == "cpu":
        return (_resize_by_rows if how == "box" else _resize_by_pillow)(images, height, width, how)
    if how == "nearest":
        rows, columns = (
            nearest_pixels(source, target).to(images.device)
            for source, target in zip(images.shape[2:], (height, width), strict=True)
        )
        return images[:, :, rows[:, None], columns]
    for size, across in ((width, True), (height, False)):
        if images.shape[3 if across else 2] != size:
            images = resize_axis(images, size, how, across)
    return images


def resize_axis(images: Tensor, size: int, how: Filter, across: bool) -> Tensor:
    """Resize along one axis as an accelerator does, on any device."""
    count, channels, height, width = images.shape
    source, device = (width if across else height), images.device
    kernel = load_kernels(device.type)
    if kernel is None:
        weights = weight_matrix(source, size, how, device)
        values = images.to(torch.float64)
        return round_to_bytes(values @ weights.T if across else weights @ values)
    made = images.new_empty(count, channels, *((height, size) if across else (size, width)))
    begin, to = images.new_zeros(count, dtype=torch.int64), torch.arange(count, device=device) * made[0].numel()
    plan = WindowPlan(begin, begin, to, size)
    kernel.resize_windows(images.contiguous(), made, taps(source, size, how, device), plan, across=across, bits=BITS)
    return made


@cache
def load_kernels(kind: str) -> ModuleType | None:
    """Return the kernels for a type of device; None if there are none or they can't be compiled."""
    if kind != "cuda":
        return None
    try:
        from brinell.resizing import kernels as found

        one = torch.ones(1, 1, dtype=torch.int32, device=kind)
        image, zero = one[None, None].to(torch.uint8), torch.zeros(1, dtype=torch.int64, device=kind)
        same = (zero.int(), one << BITS)
        for across in (True, False):  # compile all kernels now, before threads use them
            made = torch.zeros_like(image)
            found.resize_windows(image, made, same, WindowPlan(zero, zero, zero, 1), across=across, bits=BITS)
            assert int(made) == 1
        window = torch.tensor([[0, 1, 0, 1, 0, 1, 0]], device=kind)
        dark = LightPlan(torch.zeros(1, 2, dtype=torch.float64, device=kind), window, (1, 1, 1), 1)
        found.light_and_resize(image[0], made.zero_(), same, same, dark, bits=BITS)
        assert int(made) == 1
    except Exception:  # no Triton, no C compiler for it, or a device that is too old
        return None
    return found


def round_to_bytes(sums: Tensor) -> Tensor:
    """Round sums to bytes, half up, and overwrite them."""
    return sums.add_(0.5).clamp_(0, 255).to(torch.uint8)


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Copy host values to a device without waiting for it."""
    pinned = values.pin_memory() if device.type == "cuda" and not values.is_cuda else values
    return pinned.to(device, non_blocking=True)


@lru_cache(256)
def weight_matrix(source: int, target: int, how: Filter, device: torch.device) -> Tensor:
    """Return Pillow's weights scaled to a sum of 1, float64 (target, source); they stay exact."""
    with torch.inference_mode(False):
        return (pillow_weights(source, target, how) * 2.0**-BITS).to(device)


@lru_cache(256)
def taps(source: int, target: int, how: Filter, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the first source pixel of each target pixel, int32 (target,), and Pillow's weights from there on, int32
    (target, taps), padded with 0.
    """
    dense = pillow_weights(source, target, how).numpy()
    used = dense != 0
    first = used.argmax(1)
    count = int((source - used[:, ::-1].argmax(1) - first).max())
    pixels = first[:, None] + np.arange(count)
    whole = np.take_along_axis(dense, pixels.clip(max=source - 1), 1) * (pixels < source)
    with torch.inference_mode(False):
        return (
            torch.from_numpy(first.astype(np.int32)).to(device),
            torch.from_numpy(whole.astype(np.int32)).to(device),
        )


@lru_cache(256)
def pillow_weights(source: int, target: int, how: Filter) -> Tensor:
    """Return Pillow's integer weights, float64 (target, source); each row sums to about 2^22."""
    kernel, reach = _KERNELS[how]
    scale = source / target
    stretch = max(scale, 1.0)
    found = np.zeros((target, source))
    for pixel in range(target):
        centre = (pixel + 0.5) * scale
        first = max(int(centre - reach * stretch + 0.5), 0)
        last = min(int(centre + reach * stretch + 0.5), source)
        near = [kernel((at - centre + 0.5) / stretch) for at in range(first, last)]
        total = sum(near)
        found[pixel, first:last] = [math.trunc(w / total * (1 << BITS) + math.copysign(0.5, w)) for w in near]
    with torch.inference_mode(False):
        return torch.from_numpy(found)


@lru_cache(256)
def nearest_pixels(source: int, target: int) -> Tensor:
    """Return the source pixel of each target pixel, int64 (target,), with positions summed up as in Pillow."""
    step = source / target
    positions = np.cumsum(np.concatenate([[step * 0.5], np.full(target - 1, step)]))
    return torch.from_numpy(positions.astype(np.int64).clip(max=source - 1))


class Support:
    """The source pixels that each target pixel along an axis depends on: from `first` to before `last`."""

    def __init__(self, source: int, target: int, how: Filter) -> None:
        self.source, self.target = source, target
        used = pillow_weights(source, target, how).numpy() != 0
        self.first = used.argmax(1)
        self.last = source - used[:, ::-1].argmax(1)

    @staticmethod
    @lru_cache(256)
    def of(source: int, target: int, how: Filter) -> Support:
        """Return the support of a resize, computed once."""
        return Support(source, target, how)

    def targets(self, start: np.ndarray, stop: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the range of target pixels that depend on the source pixels from `start` to before `stop`."""
        return np.searchsorted(self.last, start, "right"), np.searchsorted(self.first, stop, "left")

    def nonempty_targets(self, start: np.ndarray, stop: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the same ranges, extended to at least one pixel."""
        begin, end = self.targets(start, stop)
        begin = np.minimum(begin, self.target - 1)
        return begin, np.maximum(end, begin + 1)

    def equal_windows(self, start: np.ndarray, stop: np.ndarray) -> tuple[np.ndarray, np.ndarray, int, int]:
        """Return equally large windows around these targets and around all source pixels that they depend on: where the
        target and the source windows begin, and the two sizes.
        """
        begin, end = self.targets(start, stop)
        most = int((end - begin).max())
        begin = np.minimum(begin, self.target - most)
        low, high = self.first[begin], self.last[begin + most - 1]
        size = int((high - low).max())
        return begin, np.minimum(low, self.source - size), most, size


def _resize_by_rows(images: Tensor, height: int, width: int, how: Filter) -> Tensor:
    """Resize as Pillow does, by weighted sums of whole rows: with few weights this is faster than Pillow."""
    planes = images.contiguous().flatten(0, 1).numpy()
    first, *others = _row_taps(planes.shape[2], width, how)
    across = _turn(_resize_rows(_turn(planes), width, how)) if others else planes.take(first[0], 2)
    return torch.from_numpy(_resize_rows(across, height, how)).view(*images.shape[:2], height, width)


def _resize_rows(planes: np.ndarray, size: int, how: Filter) -> np.ndarray:
    """Resize planes (n, H, W) along columns; in NumPy, whose integers are faster than torch's on a CPU."""
    (rows, weights), *others = _row_taps(planes.shape[1], size, how)
    if not others:
        return planes.take(rows, 1)
    total: np.ndarray = np.multiply(planes.take(rows, 1), weights, dtype=np.int32)
    for rows, weights in others:
        total += np.multiply(planes.take(rows, 1), weights, dtype=np.int32)
    total += 1 << (BITS - 1)
    total >>= BITS
    return total.astype(np.uint8)


@lru_cache(256)
def _row_taps(source: int, size: int, how: Filter) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the source pixels and weights (n, 1) of all targets: their first ones, then their second ones …"""
    first, weights = (part.numpy() for part in taps(source, size, how, torch.device("cpu")))
    return [
        ((first + number).clip(max=source - 1), weights[:, number : number + 1].copy())
        for number in range(weights.shape[1])
    ]


def _turn(planes: np.ndarray) -> np.ndarray:
    """Transpose planes (n, H, W), several times faster than NumPy and torch."""
    made = np.empty((len(planes), planes.shape[2], planes.shape[1]), planes.dtype)
    for plane, target in zip(planes, made, strict=True):
        cv2.transpose(plane, dst=target)
    return made


def _resize_by_pillow(images: Tensor, height: int, width: int, how: Filter) -> Tensor:
    made = np.empty((*images.shape[:2], height, width), np.uint8)
    for index, planes in enumerate(images.contiguous().numpy()):
        picture = to_picture(planes)
        picture = resize_picture_axis(resize_picture_axis(picture, (width, picture.height), how), (width, height), how)
        for channel, band in enumerate(picture.split()):
            made[index, channel] = np.asarray(band)
    return torch.from_numpy(made)


def to_picture(planes: np.ndarray) -> Image.Image:
    """Return an image (C, H, W) as a Pillow image."""
    bands = [Image.fromarray(plane) for plane in planes]
    return bands[0] if len(bands) == 1 else Image.merge("RGB", bands)


def resize_picture_axis(picture: Image.Image, size: tuple[int, int], how: Filter) -> Image.Image:
    """Resize a Pillow image to (width, height), of which at most one differs from its own."""
    return picture if picture.size == size else picture.resize(size, _PILLOW[how])


def _box(x: float) -> float:
    return 1.0 if -0.5 < x <= 0.5 else 0.0


def _triangle(x: float) -> float:
    return max(0.0, 1.0 - abs(x))


def _cubic(x: float) -> float:
    x = abs(x)
    if x < 1.0:
        return (1.5 * x - 2.5) * x * x + 1.0
    return (((x - 5) * x + 8) * x - 4) * -0.5 if x < 2.0 else 0.0


def _windowed_sinc(x: float) -> float:
    return _sinc(x) * _sinc(x / 3) if -3.0 <= x < 3.0 else 0.0


def _sinc(x: float) -> float:
    return 1.0 if x == 0.0 else math.sin(x * math.pi) / (x * math.pi)


_KERNELS: dict[str, tuple[Callable[[float], float], float]] = {
    "box": (_box, 0.5),
    "bilinear": (_triangle, 1.0),
    "bicubic": (_cubic, 2.0),
    "lanczos": (_windowed_sinc, 3.0),
}
