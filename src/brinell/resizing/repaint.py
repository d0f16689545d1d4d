"""Resizing an image again after a change in a part of it, at the cost of that part.

A spot on a photograph leaves most of it as it was. What is resized in two passes, across and then down, changes only
where the weights of a target pixel meet the changed window. The pixels are those that resizing the whole would give, to
the bit (see `resampling`). On a CPU the window's rows are resized across, then the columns that they change down, each by
Pillow. On a CUDA device kernels light and resize all windows in two launches (see `lighting`); changes that are no light,
and devices that have no kernels, have windows of about one size resized together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import torch
from PIL import Image, ImageChops
from torch import Tensor

from brinell.resizing.local import LightPlan, Local, Size, light_picture, plan_light
from brinell.resizing.resample import (
    BITS,
    Interpolation,
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

# images (T, C, h, w), which it may not overwrite; where their corners lie, int64 (T, 2), y and x; which changes, int64 (T,)
Paint = Callable[[Tensor, Tensor, Tensor], Tensor]
TOGETHER = 25  # windows that an accelerator resizes together, each as large as the largest of them


class Repainter:
    """An image (C, H, W), ready to be resized again and again: what doesn't change is made once."""

    def __init__(self, image: Tensor, height: int, width: int, how: Interpolation = "bilinear") -> None:
        self.image, self.height, self.width, self.how = image.contiguous(), height, width, how
        self.clean = resize(image[None], height, width, how)[0]
        if how != "nearest":
            self.across, self.down = Support.of(image.shape[2], width, how), Support.of(image.shape[1], height, how)
        if image.device.type == "cpu":
            self.whole = to_picture(image.contiguous().numpy())
            self.halfway = resize_picture_axis(self.whole, (width, self.whole.height), how)

    def render(self, local: Local, parameters: Tensor) -> Tensor:
        """The image under T changes (parameters (T, P) on the host), resized: uint8 (T, C, height, width), where it is."""
        if self.how == "nearest":
            return local.inputs(self.image, parameters, self._resized)
        channels, height, width = self.image.shape
        kernel = load_kernels(self.image.device.type)
        if kernel is not None and local.light is not None:
            model_input = (self.height, self.width)
            plan = plan_light(local, parameters, (channels, height, width), model_input, self.how, self.image.device)
            return self.render_light(kernel, plan)

        def paint(windows: Tensor, corners: Tensor, which: Tensor) -> Tensor:
            return local.paint(windows, corners, parameters[which])

        boxes = local.boxes(parameters, height, width)
        if self.image.device.type != "cpu":
            return self.render_windows(boxes, paint)
        return self.render_by_pillow(
            boxes, self._painted(boxes, paint) if local.light is None else self._lit(boxes, local, parameters)
        )

    def _resized(self, images: Tensor) -> Tensor:
        return resize(images, self.height, self.width, self.how)

    def render_light(self, kernel: ModuleType, plan: LightPlan) -> Tensor:
        """All windows at once: nothing is cut out, and light is added where pixels are read."""
        made = self.clean.repeat(len(plan.places), 1, 1, 1)
        across, down = (taps(side.source, side.target, self.how, made.device) for side in (self.across, self.down))
        middle = made.new_empty(plan.between)
        kernel.light_and_resize(self.image, middle, made, across, down, plan.falls, plan.places, plan.most, bits=BITS)
        return made

    def render_by_pillow(self, boxes: Tensor, windows: Iterable[tuple[int, Image.Image]]) -> Tensor:
        """In pictures of Pillow's all the way: handing pixels over costs as much as resizing them.

        `windows` are those of the changed image, each with its place among the boxes. Windows of the same rows that change
        no column together are resized across together.
        """
        made, painted = self.clean.repeat(len(boxes), 1, 1, 1).numpy(), dict(windows)
        left, right = self.across.targets(boxes[:, 1].numpy(), boxes[:, 3].numpy())
        corners, columns_of = boxes.tolist(), list(zip(left.tolist(), right.tolist(), strict=True))
        for (top, bottom), places in _strips([(top, bottom) for top, _, bottom, _ in corners], columns_of):
            rows = self.whole.crop((0, top, self.whole.width, bottom))
            for place in places:
                rows.paste(painted[place], (corners[place][1], 0))
            rows = resize_picture_axis(rows, (self.width, bottom - top), self.how)
            for place in places:
                first, last = columns_of[place]
                columns = self.halfway.crop((first, 0, last, self.halfway.height))
                columns.paste(rows.crop((first, 0, last, bottom - top)), (0, top))
                for channel, band in enumerate(resize_picture_axis(columns, (last - first, self.height), self.how).split()):
                    made[place, channel, :, first:last] = band
        return torch.from_numpy(made)

    def _painted(self, boxes: Tensor, paint: Paint) -> Iterator[tuple[int, Image.Image]]:
        """Every box's window of the changed image; boxes of one size are painted together."""
        sizes, group = torch.unique(boxes[:, 2:] - boxes[:, :2], dim=0, return_inverse=True)
        for number, (height, width) in enumerate(sizes.tolist()):
            which = (group == number).nonzero()[:, 0]
            corners = boxes[which, :2]
            cuts = [self.image[:, top : top + height, left : left + width] for top, left in corners.tolist()]
            painted = paint(torch.stack(cuts), corners, which).numpy()
            yield from ((place, to_picture(window)) for place, window in zip(which.tolist(), painted, strict=True))

    def _lit(self, boxes: Tensor, local: Local, parameters: Tensor) -> Iterator[tuple[int, Image.Image]]:
        """The same where the change is light."""
        channels, height, width = self.image.shape
        for place, (top, left, bottom, right) in enumerate(boxes.tolist()):
            box = (left, top, right, bottom)
            light = light_picture(local, parameters[place], (channels, height, width), box)
            yield place, ImageChops.add(self.whole.crop(box), light)

    def render_windows(self, boxes: Tensor, paint: Paint) -> Tensor:
        """Windows of about one area together, each as large as the largest of them needs; nothing waits for the device."""
        made = self.clean.repeat(len(boxes), 1, 1, 1)
        groups, kernel = self._groups(boxes), load_kernels(made.device.type)
        every = to_device(torch.from_numpy(np.concatenate([group.places for group in groups], 1)), made.device)
        for group, places in zip(groups, torch.split(every, [len(group.which) for group in groups], 1), strict=True):
            windows = _cut(self.image, places[0], places[1], group.source)
            corners, which = torch.from_numpy(group.places[:2].T), torch.from_numpy(group.which)
            windows = paint(windows, corners, which)
            if kernel is None:
                self._by_products(windows, places, group.target, made)
            else:
                self._by_kernel(kernel, windows, places, group.target, made)
        return made

    def _groups(self, boxes: Tensor) -> list[_Group]:
        """Boxes by their area."""
        top, left, bottom, right = boxes.numpy().T
        order = np.argsort((bottom - top) * (right - left), kind="stable")
        found = []
        for start in range(0, len(order), TOGETHER):
            which = order[start : start + TOGETHER]
            y, v, rows, height = self.down.equal_windows(top[which], bottom[which])
            x, u, columns, width = self.across.equal_windows(left[which], right[which])
            planes = np.arange(len(which)) * len(self.image)
            into = which * len(self.image) * self.height * self.width + y * self.width + x
            places = np.stack([v, u, y, x, which, planes * height * columns, into])
            found.append(_Group(which, places, (height, width), (rows, columns)))
        return found

    def _by_kernel(self, kernel: ModuleType, windows: Tensor, places: Tensor, size: Size, made: Tensor) -> None:
        """Two passes over bytes, the second into the inputs."""
        (v, u, y, x, _, between, into), (rows, columns) = places, size
        middle = windows.new_empty(*windows.shape[:3], columns)
        across, down = (taps(side.source, side.target, self.how, made.device) for side in (self.across, self.down))
        kernel.resize_windows(windows.contiguous(), middle, *across, u, x, between, columns, across=True, bits=BITS)
        kernel.resize_windows(middle, made, *down, v, y, into, rows, across=False, bits=BITS)

    def _by_products(self, windows: Tensor, places: Tensor, size: Size, made: Tensor) -> None:
        """The same by products with the windows' parts of the weights."""
        (v, u, y, x, own, *_), (rows, columns), (height, width) = places, size, windows.shape[2:]
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
    """Changes `which` (T,) whose windows are of one size. Their `places`, int64 (7, T): where they begin in the source
    (y, x) and on the target (y, x), which they are, and where they go among the bytes between both passes and among the
    inputs.
    """

    which: np.ndarray
    places: np.ndarray
    source: Size
    target: Size


def _strips(rows: list[Size], columns: list[Size]) -> Iterator[tuple[Size, list[int]]]:
    """Places with the same rows and with columns (from, to) apart, together as they come."""
    found: dict[Size, list[list[int]]] = {}
    for place, (key, (first, last)) in enumerate(zip(rows, columns, strict=True)):
        strips = found.setdefault(key, [])
        for strip in strips:
            if all(last <= columns[other][0] or columns[other][1] <= first for other in strip):
                strip.append(place)
                break
        else:
            strips.append([place])
    return ((key, strip) for key, strips in found.items() for strip in strips)


def _cut(images: Tensor, y: Tensor, x: Tensor, size: Size) -> Tensor:
    """Windows (T, …, height, width) of (…, H, W) from those corners (T,) on."""
    views = images.unfold(-2, size[0], 1).unfold(-2, size[1], 1)
    return views.movedim((-4, -3), (0, 1))[y, x]
