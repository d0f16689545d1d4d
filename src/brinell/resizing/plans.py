"""What kernels need to know about the windows that they resize: plain tensors on the device."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class WindowPlan:
    """Windows (T) that are resized along one axis; tensors are int64 (T,).

    Window t begins at the source's pixel `low[t]`, and its first target pixel is `begin[t]`. The pixels are written from
    element `to[t]` of the target tensor on, `count` along the axis.
    """

    low: Tensor
    begin: Tensor
    to: Tensor
    count: int


@dataclass(frozen=True)
class LightPlan:
    """Windows (T) of an image (C, H, W) that are lit and resized.

    The light on a pixel is the product of its row's and its column's value in `profiles`, float64 (T, P * H + W), rounded
    down, where P is 1 or C. `windows` is int64 (T, 7): first row and number of rows in the image, first row and number of
    rows on the target, first column and number of columns on the target, and the offset in the buffer between the passes,
    which has `buffer` bytes. `largest` are the largest numbers of rows in the image, rows and columns on the target.
    """

    profiles: Tensor
    windows: Tensor
    largest: tuple[int, int, int]
    buffer: int
