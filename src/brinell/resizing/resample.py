"""Resizing images as Pillow does, to the bit, on any device.

Networks were trained on images that Pillow (or libraries that follow it) had resized, and some change their mind over less
than its rounding. Pillow resamples in two passes, across and then down, each a weighted sum with whole weights of 22
bits, rounded to a byte. On a CPU Pillow itself does it, and is asked for one pass at a time: from version 13 on it goes
down first where an image shrinks more in height than in width, and the bytes of an upright photograph would depend on
the version. On a CUDA device a kernel makes the sums in whole numbers (`kernels`); where there is none, both passes are
products with a matrix of weights, whose sums float64 holds exactly. So every device and batch gives the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache
from types import ModuleType

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from brinell.types import Interpolation as Interpolation

BITS = 22  # of a weight
_PILLOW = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}
Box = tuple[int, int, int, int]


def resize(images: Tensor, height: int, width: int, how: Interpolation = "bilinear", box: Box | None = None) -> Tensor:
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
            nearest_pixels(source, target).to(images.device)
            for source, target in zip(images.shape[2:], (height, width), strict=True)
        )
        return images[:, :, rows[:, None], columns]
    for size, across in ((width, True), (height, False)):
        if images.shape[3 if across else 2] != size:
            images = resize_axis(images, size, how, across)
    return images


def resize_axis(images: Tensor, size: int, how: Interpolation, across: bool) -> Tensor:
    """One pass as an accelerator makes it, wherever the images are."""
    count, channels, height, width = images.shape
    source, device = (width if across else height), images.device
    kernel = load_kernels(device.type)
    if kernel is None:
        own = weight_matrix(source, size, how, device)
        values = images.to(torch.float64)
        return round_to_bytes(values @ own.T if across else own @ values)
    made = images.new_empty(count, channels, *((height, size) if across else (size, width)))
    begin, to = images.new_zeros(count, dtype=torch.int64), torch.arange(count, device=device) * made[0].numel()
    first, whole = taps(source, size, how, device)
    kernel.resize_windows(images.contiguous(), made, first, whole, begin, begin, to, size, across=across, bits=BITS)
    return made


@cache
def load_kernels(kind: str) -> ModuleType | None:
    """The kernels of a kind of device, or None where it has none, or nothing that could compile them."""
    if kind != "cuda":
        return None
    try:
        from brinell.resizing import kernels as found

        one = torch.ones(1, 1, dtype=torch.int32, device=kind)
        image, zero = one[None, None].to(torch.uint8), torch.zeros(1, dtype=torch.int64, device=kind)
        for across in (True, False):  # all are compiled here, before threads ask for them
            made = torch.zeros_like(image)
            found.resize_windows(image, made, zero.int(), one << BITS, zero, zero, zero, 1, across=across, bits=BITS)
            assert int(made) == 1
        place = torch.tensor([[0, 1, 0, 1, 0, 1, 0]], device=kind)
        both, dark = (zero.int(), one << BITS), torch.zeros(1, 2, dtype=torch.float64, device=kind)
        found.light_and_resize(
            image[0], torch.zeros_like(image[0]), made.zero_(), both, both, dark, place, (1, 1, 1), bits=BITS
        )
        assert int(made) == 1
    except Exception:  # no Triton, no compiler of C for it, a device that is too old
        return None
    return found


def round_to_bytes(sums: Tensor) -> Tensor:
    """Products with weights, which are shares of 1, as bytes: half up. Overwrites them."""
    return sums.add_(0.5).clamp_(0, 255).to(torch.uint8)


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """Host values on a device. Nothing is waited for: they are fetched when the device comes to it."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values.to(device)


@lru_cache(256)
def weight_matrix(source: int, target: int, how: Interpolation, device: torch.device) -> Tensor:
    """Pillow's weights as shares of 1, float64 (target, source): still exact."""
    with torch.inference_mode(False):
        return (pillow_weights(source, target, how) * 2.0**-BITS).to(device)


@lru_cache(256)
def taps(source: int, target: int, how: Interpolation, device: torch.device) -> tuple[Tensor, Tensor]:
    """Which source pixel each target pixel takes first, int32 (target,), and Pillow's weights from there on, int32 (target,
    taps); 0 where it takes fewer than others.
    """
    dense = pillow_weights(source, target, how).numpy()
    there = dense != 0
    first = there.argmax(1)
    count = int((source - there[:, ::-1].argmax(1) - first).max())
    places = first[:, None] + np.arange(count)
    whole = np.take_along_axis(dense, places.clip(max=source - 1), 1) * (places < source)
    with torch.inference_mode(False):
        return (
            torch.from_numpy(first.astype(np.int32)).to(device),
            torch.from_numpy(whole.astype(np.int32)).to(device),
        )


@lru_cache(256)
def pillow_weights(source: int, target: int, how: Interpolation) -> Tensor:
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
        return torch.from_numpy(found)


@lru_cache(256)
def nearest_pixels(source: int, target: int) -> Tensor:
    """Which pixel of the source each pixel of the target takes, int64 (target,). Sums up as Pillow does."""
    step = source / target
    places = np.cumsum(np.concatenate([[step * 0.5], np.full(target - 1, step)]))
    return torch.from_numpy(places.astype(np.int64).clip(max=source - 1))


class Support:
    """Along one side: which source pixels each target pixel is made of, from `first` to before `last`."""

    def __init__(self, source: int, target: int, how: Interpolation) -> None:
        self.source, self.target = source, target
        there = pillow_weights(source, target, how).numpy() != 0
        self.first = there.argmax(1)
        self.last = source - there[:, ::-1].argmax(1)

    @staticmethod
    @lru_cache(256)
    def of(source: int, target: int, how: Interpolation) -> Support:
        """The same one for the same sizes."""
        return Support(source, target, how)

    def targets(self, start: np.ndarray, stop: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The target pixels that source pixels from `start` to before `stop` are part of."""
        return np.searchsorted(self.last, start, "right"), np.searchsorted(self.first, stop, "left")

    def nonempty_targets(self, start: np.ndarray, stop: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same, at least one each."""
        begin, end = self.targets(start, stop)
        begin = np.minimum(begin, self.target - 1)
        return begin, np.maximum(end, begin + 1)

    def equal_windows(self, start: np.ndarray, stop: np.ndarray) -> tuple[np.ndarray, np.ndarray, int, int]:
        """Windows of one size around those targets, and of one size around all that they are made of: where both begin,
        and their sizes.
        """
        begin, end = self.targets(start, stop)
        most = int((end - begin).max())
        begin = np.minimum(begin, self.target - most)
        low, high = self.first[begin], self.last[begin + most - 1]
        size = int((high - low).max())
        return begin, np.minimum(low, self.source - size), most, size


def _by_pillow(images: Tensor, height: int, width: int, how: Interpolation) -> Tensor:
    made = np.empty((*images.shape[:2], height, width), np.uint8)
    for place, planes in enumerate(images.contiguous().numpy()):
        picture = to_picture(planes)
        picture = resize_picture_axis(resize_picture_axis(picture, (width, picture.height), how), (width, height), how)
        for channel, band in enumerate(picture.split()):
            made[place, channel] = np.asarray(band)
    return torch.from_numpy(made)


def to_picture(planes: np.ndarray) -> Image.Image:
    """An image (C, H, W) as a picture of Pillow's."""
    bands = [Image.fromarray(plane) for plane in planes]
    return bands[0] if len(bands) == 1 else Image.merge("RGB", bands)


def resize_picture_axis(picture: Image.Image, size: tuple[int, int], how: Interpolation) -> Image.Image:
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
