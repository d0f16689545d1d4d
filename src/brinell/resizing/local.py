"""Changes in a part of an image; and those that are light, made ready for a device.

Light that falls off along rows and columns alike, as a Gaussian's does, is a product of a row and a column. Kernels need
no more than these and the place of every window to light an image and resize it in two launches. Images of one size under
one grid share them, so they are kept: an image then costs its launches, and no thread that asks a model waits for Python.
On a CPU the light of each window is kept as a picture, which Pillow adds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from brinell.resizing.resample import Box, Interpolation, Support, to_device, to_picture

Size = tuple[int, int]  # height and width
KEPT = 32  # of a megabyte or so: the whole grid is asked for again and again, and parts of it at the ends of batches

PICTURES, LARGE = 256, 100_000  # of light on a CPU, and pixels of those that are made anew each time


@dataclass(frozen=True)
class Local:
    """What a view changes: its `boxes` (parameters (T, P), height and width to int64 (T, 4): top, left, bottom, right, on
    the host), and how it paints any windows (T, C, h, w) of an original, which it may not overwrite: given where their
    corners lie, int64 (T, 2), y and x, and its parameters. Where it paints by adding `light`, that is parameters, channels,
    height and width to float64 columns (T, 1 or C, height) and rows (T, width) on the host: of their product whole grey
    levels are added, and what is above 255 is lost.
    """

    boxes: Callable[[Tensor, int, int], Tensor]
    paint: Callable[[Tensor, Tensor, Tensor], Tensor]
    light: Callable[[Tensor, int, int, int], tuple[Tensor, Tensor]] | None = None

    def inputs(self, original: Tensor, parameters: Tensor, to_inputs: Callable[[Tensor], Tensor]) -> Tensor:
        """The slow way: the whole image is painted."""
        corners = torch.zeros(len(parameters), 2, dtype=torch.int64)
        return to_inputs(self.paint(original.expand(len(parameters), -1, -1, -1), corners, parameters))


@dataclass(frozen=True)
class LightPlan:
    """What `kernels.light_and_resize` is told, on the device, and how many bytes its first pass gives."""

    falls: Tensor
    places: Tensor
    most: tuple[int, int, int]
    between: int


def plan_light(
    local: Local,
    parameters: Tensor,
    image: tuple[int, int, int],
    model_input: Size,
    how: Interpolation,
    device: torch.device,
) -> LightPlan:
    """The plan for images (C, H, W) of one size that become inputs of one size; kept."""
    # each stream has its own: what one of them sends, another might read before it is there
    stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
    values = parameters.to(torch.float64).contiguous().numpy()
    return _plan_light(local, values.tobytes(), values.shape[1], image, model_input, how, device, stream)


@lru_cache(KEPT)
def _plan_light(
    local: Local,
    values: bytes,
    each: int,
    image: tuple[int, int, int],
    model_input: Size,
    how: Interpolation,
    device: torch.device,
    stream: int,
) -> LightPlan:
    parameters = torch.from_numpy(np.frombuffer(values).reshape(-1, each).copy())
    assert local.light is not None
    columns, rows = local.light(parameters, *image)
    top, left, bottom, right = local.boxes(parameters, *image[1:]).numpy().T
    down, across = (Support.of(source, target, how) for source, target in zip(image[1:], model_input, strict=True))
    y, below = down.nonempty_targets(top, bottom)
    x, beyond = across.nonempty_targets(left, right)
    begin, tall, count, wide = down.first[y], down.last[below - 1] - down.first[y], below - y, beyond - x
    sizes = image[0] * tall * wide
    places = np.stack([begin, tall, y, count, x, wide, np.cumsum(sizes) - sizes], 1).astype(np.int64)
    falls = np.concatenate([columns.flatten(1).numpy(), rows.numpy(), places.view(np.float64)], 1)  # in one transfer
    there = to_device(torch.from_numpy(falls), device)
    return LightPlan(
        there[:, :-7].contiguous(),
        there[:, -7:].contiguous().view(torch.int64),
        (int(tall.max()), int(count.max()), int(wide.max())),
        int(sizes.sum()),
    )


def light_picture(local: Local, parameters: Tensor, image: tuple[int, int, int], box: Box) -> Image.Image:
    """The light of one change (P,) on a window (left, top, right, bottom) of images (C, H, W), in their mode; kept."""
    left, top, right, bottom = box
    made = _light_picture if (right - left) * (bottom - top) <= LARGE else _light_picture.__wrapped__
    return made(local, parameters.to(torch.float64).numpy().tobytes(), image, box)


@lru_cache(PICTURES)
def _light_picture(local: Local, values: bytes, image: tuple[int, int, int], box: Box) -> Image.Image:
    left, top, right, bottom = box
    assert local.light is not None
    columns, rows = local.light(torch.from_numpy(np.frombuffer(values).copy())[None], *image)
    light = columns[0, :, top:bottom, None] * rows[0, left:right]
    return to_picture(light.clamp_(max=255).to(torch.uint8).expand(image[0], -1, -1).numpy())
