"""Resizing an image again after a change of a part of it, at the cost of that part.

A spot of light leaves most of a photograph unchanged, and after resizing only those pixels change whose weights reach the
changed window. The result equals that of resizing the whole image to the bit (see `resample`). On a CPU Pillow resizes the
window's rows horizontally, then the affected columns vertically. On a CUDA device kernels light and resize all windows in
two launches (see `local`). For other changes, and on devices without kernels, windows of similar size are resized together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import torch
from PIL import Image, ImageChops
from torch import Tensor

from brinell.resizing.local import Local, Resizing, Size, light_picture, plan_light
from brinell.resizing.plans import LightPlan, WindowPlan
from brinell.resizing.resample import (
    BITS,
    Support,
    load_kernels,
    resize,
    resize_picture_axis,
    round_to_bytes,
    taps,
    to_device,
    to_picture,
    weight_matrix,
)
from brinell.types import Interpolation

# changes windows (T, C, h, w) without overwriting them, given their corners (y, x), int64 (T, 2), and change numbers (T,)
Paint = Callable[[Tensor, Tensor, Tensor], Tensor]
TOGETHER = 25  # windows that an accelerator resizes at once, padded to the largest of them


class Repainter:
    """An image (C, H, W) that is resized under many local changes; what they share is computed once."""

    def __init__(self, image: Tensor, height: int, width: int, how: Interpolation = "bilinear") -> None:
        self.image, self.height, self.width, self.how = image.contiguous(), height, width, how
        self.clean = resize(image[None], height, width, how)[0]
        if how != "nearest":
            self.across, self.down = Support.of(image.shape[2], width, how), Support.of(image.shape[1], height, how)
        if image.device.type == "cpu":
            self.whole = to_picture(image.contiguous().numpy())
            self.halfway = resize_picture_axis(self.whole, (width, self.whole.height), how)

    def render(self, local: Local, parameters: Tensor) -> Tensor:
        """Return the resized image under T changes with parameters (T, P) on the host: uint8 (T, C, height, width)."""
        if self.how == "nearest":
            return local.inputs(self.image, parameters, self._resize)
        channels, height, width = self.image.shape
        kernel = load_kernels(self.image.device.type)
        if kernel is not None and local.light is not None:
            resizing = Resizing((channels, height, width), (self.height, self.width), self.how)
            return self.render_light(kernel, plan_light(local, parameters, resizing, self.image.device))

        def paint(windows: Tensor, corners: Tensor, which: Tensor) -> Tensor:
            return local.paint(windows, corners, parameters[which])

        boxes = local.boxes(parameters, height, width)
        if self.image.device.type != "cpu":
            return self.render_windows(boxes, paint)
        return self.render_by_pillow(
            boxes,
            self._paint_windows(boxes, paint) if local.light is None else self._light_windows(boxes, local, parameters),
        )

    def _resize(self, images: Tensor) -> Tensor:
        return resize(images, self.height, self.width, self.how)

    def render_light(self, kernel: ModuleType, plan: LightPlan) -> Tensor:
        """Light and resize all windows at once, without cutting them out."""
        made = self.clean.repeat(len(plan.windows), 1, 1, 1)
        across, down = (taps(side.source, side.target, self.how, made.device) for side in (self.across, self.down))
        kernel.light_and_resize(self.image, made, across, down, plan, bits=BITS)
        return made

    def render_by_pillow(self, boxes: Tensor, windows: Iterable[tuple[int, Image.Image]]) -> Tensor:
        """Work in Pillow's images throughout, because converting pixels costs as much as resizing them.

        `windows` are the changed windows, each with the index of its box. Windows in the same rows that affect different
        columns share the horizontal pass.
        """
        made, painted = self.clean.repeat(len(boxes), 1, 1, 1).numpy(), dict(windows)
        left, right = self.across.targets(boxes[:, 1].numpy(), boxes[:, 3].numpy())
        corners, columns_of = boxes.tolist(), list(zip(left.tolist(), right.tolist(), strict=True))
        for (top, bottom), group in _group_strips([(top, bottom) for top, _, bottom, _ in corners], columns_of):
            rows = self.whole.crop((0, top, self.whole.width, bottom))
            for index in group:
                rows.paste(painted[index], (corners[index][1], 0))
            rows = resize_picture_axis(rows, (self.width, bottom - top), self.how)
            for index in group:
                first, last = columns_of[index]
                columns = self.halfway.crop((first, 0, last, self.halfway.height))
                columns.paste(rows.crop((first, 0, last, bottom - top)), (0, top))
                for channel, band in enumerate(resize_picture_axis(columns, (last - first, self.height), self.how).split()):
                    made[index, channel, :, first:last] = band
        return torch.from_numpy(made)

    def _paint_windows(self, boxes: Tensor, paint: Paint) -> Iterator[tuple[int, Image.Image]]:
        """Yield the index and the changed window of every box; boxes of one size are painted together."""
        sizes, group = torch.unique(boxes[:, 2:] - boxes[:, :2], dim=0, return_inverse=True)
        for number, (height, width) in enumerate(sizes.tolist()):
            which = (group == number).nonzero()[:, 0]
            corners = boxes[which, :2]
            cuts = [self.image[:, top : top + height, left : left + width] for top, left in corners.tolist()]
            painted = paint(torch.stack(cuts), corners, which).numpy()
            yield from ((index, to_picture(window)) for index, window in zip(which.tolist(), painted, strict=True))

    def _light_windows(self, boxes: Tensor, local: Local, parameters: Tensor) -> Iterator[tuple[int, Image.Image]]:
        """Yield the same for a change that adds light."""
        channels, height, width = self.image.shape
        for index, (top, left, bottom, right) in enumerate(boxes.tolist()):
            box = (left, top, right, bottom)
            light = light_picture(local, parameters[index], (channels, height, width), box)
            yield index, ImageChops.add(self.whole.crop(box), light)

    def render_windows(self, boxes: Tensor, paint: Paint) -> Tensor:
        """Resize windows of similar area together, padded to the largest of them, without waiting for the device."""
        made = self.clean.repeat(len(boxes), 1, 1, 1)
        groups, kernel = self._groups(boxes), load_kernels(made.device.type)
        every = to_device(torch.from_numpy(np.concatenate([group.positions for group in groups], 1)), made.device)
        parts = torch.split(every, [len(group.which) for group in groups], 1)
        for group, positions in zip(groups, parts, strict=True):
            windows = _cut(self.image, positions[0], positions[1], group.source)
            corners, which = torch.from_numpy(group.positions[:2].T), torch.from_numpy(group.which)
            windows = paint(windows, corners, which)
            if kernel is None:
                self._resize_by_products(windows, positions, group.target, made)
            else:
                self._resize_by_kernel(kernel, windows, positions, group.target, made)
        return made

    def _groups(self, boxes: Tensor) -> list[_Group]:
        """Group boxes by their area."""
        top, left, bottom, right = boxes.numpy().T
        order = np.argsort((bottom - top) * (right - left), kind="stable")
        found = []
        for start in range(0, len(order), TOGETHER):
            which = order[start : start + TOGETHER]
            y, v, rows, height = self.down.equal_windows(top[which], bottom[which])
            x, u, columns, width = self.across.equal_windows(left[which], right[which])
            planes = np.arange(len(which)) * len(self.image)
            into = which * len(self.image) * self.height * self.width + y * self.width + x
            positions = np.stack([v, u, y, x, which, planes * height * columns, into])
            found.append(_Group(which, positions, (height, width), (rows, columns)))
        return found

    def _resize_by_kernel(self, kernel: ModuleType, windows: Tensor, positions: Tensor, size: Size, made: Tensor) -> None:
        """Make both passes with kernels; the second writes into `made`."""
        (v, u, y, x, _, between, into), (rows, columns) = positions, size
        buffer = windows.new_empty(*windows.shape[:3], columns)
        across, down = (taps(side.source, side.target, self.how, made.device) for side in (self.across, self.down))
        kernel.resize_windows(
            windows.contiguous(), buffer, across, WindowPlan(u, x, between, columns), across=True, bits=BITS
        )
        kernel.resize_windows(buffer, made, down, WindowPlan(v, y, into, rows), across=False, bits=BITS)

    def _resize_by_products(self, windows: Tensor, positions: Tensor, size: Size, made: Tensor) -> None:
        """Make both passes by products with the parts of the weight matrices that belong to the windows."""
        (v, u, y, x, own, *_), (rows, columns), (height, width) = positions, size, windows.shape[2:]
        across, down = (weight_matrix(side.source, side.target, self.how, made.device) for side in (self.across, self.down))
        wide, tall = _cut(across, x, u, (columns, width)), _cut(down, y, v, (rows, height))
        passed = round_to_bytes(windows.to(torch.float64) @ wide.transpose(1, 2)[:, None])
        passed = round_to_bytes(tall[:, None] @ passed.to(torch.float64))
        row, column = (
            begin[:, None] + torch.arange(count, device=made.device) for begin, count in ((y, rows), (x, columns))
        )
        made[own[:, None, None], :, row[:, :, None], column[:, None, :]] = passed.permute(0, 2, 3, 1)


@dataclass(frozen=True)
class _Group:
    """Changes `which` (T,) with windows of one size. `positions` is int64 (7, T): where windows begin in the source (y, x)
    and on the target (y, x), which changes they are, and their offsets in the buffer between the passes and in the result.
    """

    which: np.ndarray
    positions: np.ndarray
    source: Size
    target: Size


def _group_strips(rows: list[Size], columns: list[Size]) -> Iterator[tuple[Size, list[int]]]:
    """Yield rows and the indices of windows in these rows whose columns (from, to) don't overlap."""
    found: dict[Size, list[list[int]]] = {}
    for index, (key, (first, last)) in enumerate(zip(rows, columns, strict=True)):
        strips = found.setdefault(key, [])
        for strip in strips:
            if all(last <= columns[other][0] or columns[other][1] <= first for other in strip):
                strip.append(index)
                break
        else:
            strips.append([index])
    return ((key, strip) for key, strips in found.items() for strip in strips)


def _cut(images: Tensor, y: Tensor, x: Tensor, size: Size) -> Tensor:
    """Return windows (T, …, height, width) of (…, H, W) at the given corners (T,)."""
    views = images.unfold(-2, size[0], 1).unfold(-2, size[1], 1)
    return views.movedim((-4, -3), (0, 1))[y, x]
