"""Resizing an image again after a change in a part of it, at the cost of that part.

A spot on a photograph leaves most of it as it was. What is resized in two passes, across and then down, changes only
where the weights of a target pixel meet the changed window. The pixels are those that resizing the whole would give, to
the bit (see `resampling`). On a CPU the window's rows are resized across, then the columns that they change down, each by
Pillow; on an accelerator windows of about one size are resized together by products with their parts of the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from brinell.resampling import Interpolation, in_pillow, resampled, rounded, weights

# images (T, C, h, w), which it may not overwrite; where their corners lie, int64 (T, 2), y and x; which changes, int64 (T,)
Paint = Callable[[Tensor, Tensor, Tensor], Tensor]
TOGETHER = 25  # windows that an accelerator resizes together, each as large as the largest of them


def repainted(
    image: Tensor, boxes: Tensor, paint: Paint, height: int, width: int, how: Interpolation = "bilinear"
) -> Tensor:
    """An image (C, H, W) under T changes, resized: uint8 (T, C, height, width), where the image is.

    Change t alters pixels of box t alone (int64 (T, 4) on the host: top, left, bottom, right); `paint` makes any window of
    the changed image from the same window of the image.
    """
    if how == "nearest":
        return _whole(image, boxes, paint, height, width, how)
    across, down = Reach.of(image.shape[2], width, how), Reach.of(image.shape[1], height, how)
    if image.device.type == "cpu":
        return _by_pillow(image, boxes, paint, across, down, how)
    return _by_products(image, boxes, paint, across, down, how)


def _whole(image: Tensor, boxes: Tensor, paint: Paint, height: int, width: int, how: Interpolation) -> Tensor:
    corners = torch.zeros(len(boxes), 2, dtype=torch.int64)
    return resampled(paint(image.expand(len(boxes), -1, -1, -1), corners, torch.arange(len(boxes))), height, width, how)


class Reach:
    """Along one side: which source pixels each target pixel is made of, from `first` to before `last`."""

    def __init__(self, source: int, target: int, how: Interpolation) -> None:
        self.source, self.target = source, target
        there = weights(source, target, how).numpy() != 0
        self.first = there.argmax(1)
        self.last = source - there[:, ::-1].argmax(1)

    @staticmethod
    @lru_cache(256)
    def of(source: int, target: int, how: Interpolation) -> Reach:
        """The same one for the same sizes."""
        return Reach(source, target, how)

    def targets(self, start: np.ndarray, stop: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The target pixels that source pixels from `start` to before `stop` are part of."""
        return np.searchsorted(self.last, start, "right"), np.searchsorted(self.first, stop, "left")

    def even(self, start: np.ndarray, stop: np.ndarray) -> tuple[Tensor, Tensor]:
        """Windows of one size around those targets, and of one size around all that they are made of: their places,
        int64 (T, targets) and (T, sources).
        """
        begin, end = self.targets(start, stop)
        most = int((end - begin).max())
        begin = np.minimum(begin, self.target - most)
        low, high = self.first[begin], self.last[begin + most - 1]
        size = int((high - low).max())
        low = np.minimum(low, self.source - size)
        places = (torch.from_numpy(each)[:, None] for each in (begin, low))
        first, second = (each + torch.arange(count) for each, count in zip(places, (most, size), strict=True))
        return first, second


def _by_pillow(image: Tensor, boxes: Tensor, paint: Paint, across: Reach, down: Reach, how: Interpolation) -> Tensor:
    """Channels last all the way, as Pillow has them."""
    pixels = image.permute(1, 2, 0).contiguous().numpy()
    halfway = in_pillow(pixels, len(pixels), across.target, how)
    made = np.empty((len(boxes), down.target, across.target, len(image)), np.uint8)
    made[:] = in_pillow(halfway, down.target, across.target, how)
    left, right = across.targets(boxes[:, 1].numpy(), boxes[:, 3].numpy())
    for place, window in _painted(image, boxes, paint):
        top, start, bottom, stop = boxes[place].tolist()
        rows = pixels[top:bottom].copy()
        rows[:, start:stop] = window
        changed = slice(left[place], right[place])
        columns = halfway[:, changed].copy()
        columns[top:bottom] = in_pillow(rows, bottom - top, across.target, how)[:, changed]
        made[place, :, changed] = in_pillow(columns, down.target, columns.shape[1], how)
    return torch.from_numpy(made).permute(0, 3, 1, 2).contiguous()


def _painted(image: Tensor, boxes: Tensor, paint: Paint) -> Iterator[tuple[int, np.ndarray]]:
    """Every box's window of the changed image, channels last; boxes of one size are painted together."""
    sizes, group = torch.unique(boxes[:, 2:] - boxes[:, :2], dim=0, return_inverse=True)
    for number, (height, width) in enumerate(sizes.tolist()):
        which = (group == number).nonzero()[:, 0]
        corners = boxes[which, :2]
        windows = torch.stack([image[:, top : top + height, left : left + width] for top, left in corners.tolist()])
        yield from zip(which.tolist(), paint(windows, corners, which).permute(0, 2, 3, 1).numpy(), strict=True)


def _by_products(image: Tensor, boxes: Tensor, paint: Paint, across: Reach, down: Reach, how: Interpolation) -> Tensor:
    """Boxes of about one area together, each window as large as the largest of them needs."""
    device = image.device
    horizontal, vertical = (weights(side.source, side.target, how, device) for side in (across, down))
    made = resampled(image[None], down.target, across.target, how).expand(len(boxes), -1, -1, -1).contiguous()
    top, left, bottom, right = boxes.numpy().T
    order = torch.from_numpy(np.argsort((bottom - top) * (right - left), kind="stable"))
    for start in range(0, len(order), TOGETHER):
        which = order[start : start + TOGETHER]
        rows, source_rows = down.even(top[which], bottom[which])
        columns, source_columns = across.even(left[which], right[which])
        corners = torch.stack([source_rows[:, 0], source_columns[:, 0]], 1)
        own, y, x, v, u = (each.to(device) for each in (which, rows, columns, source_rows, source_columns))
        windows = paint(image[:, v[:, :, None], u[:, None, :]].transpose(0, 1), corners, which)
        wide = horizontal[x[:, :, None], u[:, None, :]].transpose(1, 2)[:, None]
        tall = vertical[y[:, :, None], v[:, None, :]][:, None]
        passed = rounded(windows.to(torch.float64) @ wide)
        made[own[:, None, None], :, y[:, :, None], x[:, None, :]] = rounded(tall @ passed.to(torch.float64)).permute(
            0, 2, 3, 1
        )
    return made
