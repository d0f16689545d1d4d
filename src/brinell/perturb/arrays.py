"""Images of any kind as batches of grey levels, and back: NumPy arrays, torch tensors and Pillow images.

A layout names the axes of an array: HW, HWC, CHW, NHW, NHWC or NCHW. uint8 holds grey levels, floats lie in [0, 1]. Floats
are rounded to grey levels to be changed; a value whose grey level doesn't change comes back as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from brinell.errors import DataError

Layout = Literal["auto", "HW", "HWC", "CHW", "NHW", "NHWC", "NCHW"]
CHANNELS = (1, 3)
MODES = ("L", "RGB")


@dataclass(frozen=True)
class Batch:
    """Images as uint8 (N, C, H, W), and how changed ones become what was given."""

    images: Tensor
    restore: Callable[[Tensor], Any]


def to_batch(images: Any, layout: Layout = "auto") -> Batch:
    """Return an image or a batch of images of one size as grey levels."""
    if isinstance(images, Image.Image):
        return _from_picture(images)
    if isinstance(images, Tensor):
        return _from_tensor(images, layout, prefer_last=False)
    if isinstance(images, np.ndarray):
        array = np.ascontiguousarray(images)  # torch knows no negative strides
        if array.dtype != np.uint8 and array.dtype.kind != "f":
            raise DataError(f"expected images of uint8 or floats, got {array.dtype}; scale them to one of these first")
        batch = _from_tensor(torch.from_numpy(array.copy()), layout, prefer_last=True)
        return Batch(batch.images, lambda changed: batch.restore(changed).contiguous().numpy())
    raise DataError(
        f"expected a NumPy array, a torch tensor, a Pillow image or a list of them, got {type(images).__name__}"
    )


def _from_picture(picture: Image.Image) -> Batch:
    if picture.mode not in MODES:
        raise DataError(f"expected a picture in mode L or RGB, got {picture.mode}; convert it: picture.convert('RGB')")
    array = torch.from_numpy(np.array(picture))
    batch = _from_tensor(array, "HW" if picture.mode == "L" else "HWC", prefer_last=True)
    return Batch(batch.images, lambda changed: Image.fromarray(batch.restore(changed).contiguous().numpy()))


def _from_tensor(tensor: Tensor, layout: Layout, *, prefer_last: bool) -> Batch:
    tensor = tensor.detach()
    axes = _check_layout(tuple(tensor.shape), layout) if layout != "auto" else _find_layout(tensor.shape, prefer_last)
    given = _channels_first(tensor, axes)
    if min(given.shape[2:]) < 1:
        raise DataError(f"expected images with pixels, got shape {tuple(tensor.shape)}")
    if tensor.dtype == torch.uint8:
        return Batch(given.contiguous(), lambda changed: _as_given(changed, axes))
    if not tensor.is_floating_point():
        raise DataError(f"expected images of uint8 or floats, got {tensor.dtype}; scale them to one of these first")
    if given.numel() and not bool(((given >= 0) & (given <= 1)).all()):
        low, high = (f"{float(value):.3g}" for value in (given.min(), given.max()))
        raise DataError(f"expected floats in [0, 1], got {low} to {high}; apply operators before normalising")
    levels = (given.to(torch.float32) * 255).round().to(torch.uint8)

    def restore(changed: Tensor) -> Tensor:
        floats = torch.where(changed == levels, given, (changed.to(torch.float32) / 255).to(given.dtype))
        return _as_given(floats, axes)

    return Batch(levels.contiguous(), restore)


def _check_layout(shape: tuple[int, ...], layout: str) -> str:
    if layout not in get_args(Layout):
        raise DataError(f"expected a layout of {', '.join(get_args(Layout))}, got {layout!r}")
    if len(shape) != len(layout):
        raise DataError(f"expected an array with the axes {layout}, got shape {shape}")
    if "C" in layout and shape[layout.index("C")] not in CHANNELS:
        raise DataError(f"expected 1 or 3 channels, got {shape[layout.index('C')]} in shape {shape} as {layout}")
    return layout


def _find_layout(shape: Sequence[int], prefer_last: bool) -> str:
    """Return the layout that a shape must have; where both are possible, that of its library."""
    found = tuple(shape)
    if len(found) == 2:
        return "HW"
    if len(found) in (3, 4):
        batch = "N" if len(found) == 4 else ""
        last, first = f"{batch}HWC", f"{batch}CHW"
        fitting = [axes for axes in (last, first) if found[axes.index("C")] in CHANNELS]
        if fitting:
            return fitting[0] if prefer_last else fitting[-1]
    raise DataError(
        f"expected images (H, W), (H, W, C), (C, H, W) or batches of them with 1 or 3 channels, got shape {found}; "
        "grey images without an axis for channels need layout='NHW'"
    )


def _channels_first(tensor: Tensor, axes: str) -> Tensor:
    """Return a tensor as (N, C, H, W)."""
    if "C" not in axes:
        tensor = tensor.unsqueeze(-3)
    elif axes.endswith("C"):
        tensor = tensor.movedim(-1, -3)
    return tensor if "N" in axes else tensor[None]


def _as_given(images: Tensor, axes: str) -> Tensor:
    """Return images (N, C, H, W) in a layout: the inverse of `_channels_first`."""
    tensor = images if "N" in axes else images[0]
    if "C" not in axes:
        return tensor.squeeze(-3)
    return tensor.movedim(-3, -1).contiguous() if axes.endswith("C") else tensor
