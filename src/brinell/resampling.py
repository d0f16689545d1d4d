"""Resizing images as Pillow does, to the bit, on any device.

Networks were trained on images that Pillow (or libraries that follow it) had resized, and some change their mind over less
than its rounding. Pillow resamples in two passes, across and then down, each a weighted sum with whole weights of 22
bits, rounded to a byte. Both passes are products with a matrix of weights here: float64 holds their sums exactly, so
every device and batch gives the same bytes. On a CPU Pillow itself does it, many times faster than a dense product, and is
asked for one pass at a time: from version 13 on it goes down first where an image shrinks more in height than in width,
and the bytes of an upright photograph would depend on the version.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import Tensor

Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos"]
BITS = 22  # of a weight
_PILLOW = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
Box = tuple[int, int, int, int]


def resampled(images: Tensor, height: int, width: int, how: Interpolation = "bilinear", box: Box | None = None) -> Tensor:
    """uint8 images (N, C, H, W) resized to that size, after a cut to `box` (left, top, right, bottom), if any."""
    if box is not None:
        left, top, right, bottom = box
        images = images[..., top:bottom, left:right]
    if images.shape[2:] == (height, width):
        return images
    if images.device.type == "cpu":
        return _by_pillow(images, height, width, how)
    if how == "nearest":
        rows, columns = (
            nearest(source, target).to(images.device)
            for source, target in zip(images.shape[2:], (height, width), strict=True)
        )
        return images[:, :, rows[:, None], columns]
    if images.shape[3] != width:
        images = rounded(images.to(torch.float64) @ weights(images.shape[3], width, how, images.device).T)
    if images.shape[2] != height:
        images = rounded(weights(images.shape[2], height, how, images.device) @ images.to(torch.float64))
    return images


def rounded(sums: Tensor) -> Tensor:
    """Weighted sums of bytes, as bytes: half up. Overwrites them."""
    return sums.add_(1 << (BITS - 1)).mul_(2.0**-BITS).floor_().clamp_(0, 255).to(torch.uint8)


@lru_cache(256)
def weights(source: int, target: int, how: Interpolation, device: torch.device | None = None) -> Tensor:
    """Pillow's whole weights, float64 (target, source): the rows' sums are about 2^22."""
    kernel, reach = _KERNELS[how]
    scale = source / target
    stretch = max(scale, 1.0)
    found = np.zeros((target, source))
    for place in range(target):
        centre = (place + 0.5) * scale
        first = max(int(centre - reach * stretch + 0.5), 0)
        last = min(int(centre + reach * stretch + 0.5), source)
        near = [kernel((at - centre + 0.5) / stretch) for at in range(first, last)]
        total = sum(near)
        found[place, first:last] = [math.trunc(w / total * (1 << BITS) + math.copysign(0.5, w)) for w in near]
    with torch.inference_mode(False):
        return torch.from_numpy(found).to(device or "cpu")


@lru_cache(256)
def nearest(source: int, target: int) -> Tensor:
    """Which pixel of the source each pixel of the target takes, int64 (target,). Sums up as Pillow does."""
    step = source / target
    places = np.cumsum(np.concatenate([[step * 0.5], np.full(target - 1, step)]))
    return torch.from_numpy(places.astype(np.int64).clip(max=source - 1))


def _by_pillow(images: Tensor, height: int, width: int, how: Interpolation) -> Tensor:
    made = np.empty((*images.shape[:2], height, width), np.uint8)
    for place, planes in enumerate(images.contiguous().numpy()):
        picture = picture_of(planes)
        picture = in_one_pass(in_one_pass(picture, (width, picture.height), how), (width, height), how)
        for channel, band in enumerate(picture.split()):
            made[place, channel] = np.asarray(band)
    return torch.from_numpy(made)


def picture_of(planes: np.ndarray) -> Image.Image:
    """An image (C, H, W) as a picture of Pillow's."""
    bands = [Image.fromarray(plane) for plane in planes]
    return bands[0] if len(bands) == 1 else Image.merge("RGB", bands)


def in_one_pass(picture: Image.Image, size: tuple[int, int], how: Interpolation) -> Image.Image:
    """A picture resized to (width, height), of which one is as it was."""
    return picture if picture.size == size else picture.resize(size, _PILLOW[how])


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
    "bilinear": (_triangle, 1.0),
    "bicubic": (_cubic, 2.0),
    "lanczos": (_windowed_sinc, 3.0),
}
