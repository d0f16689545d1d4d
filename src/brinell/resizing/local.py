"""Changes of a part of an image, and the light that some of them add, prepared for a device.

Light with a separable shape, such as a Gaussian, is the product of a column and a row. Kernels need only these two and the
position of every window to light an image and resize it in two launches. Images of one size under one grid share them, so
plans are cached: an image then costs two launches and no Python work that keeps a model waiting. On a CPU the light of each
window is cached as a picture that Pillow adds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from brinell.resizing.plans import LightPlan
from brinell.resizing.resample import Box, Support, to_device, to_picture
from brinell.types import Interpolation

Size = tuple[int, int]  # height and width
Shape = tuple[int, int, int]  # channels, height and width
KEPT = 32  # plans of about a megabyte: the whole grid is requested repeatedly, and parts of it at the ends of batches

PICTURES, LARGE = 256, 100_000  # cached pictures of light on a CPU; those with more pixels are computed each time


@dataclass(frozen=True)
class Local:
    """A change of a part of an image.

    `boxes` maps parameters (T, P), height and width to the parts that change, int64 (T, 4) on the host: top, left, bottom,
    right. `paint` changes any windows (T, C, h, w) of an original without overwriting them, given their corners (y, x),
    int64 (T, 2), and the parameters. A change that adds light has `light`: from parameters, channels, height and width to
    float64 columns (T, 1 or C, height) and rows (T, width) on the host, whose products, rounded down, are added and clipped
    at 255.
    """

    boxes: Callable[[Tensor, int, int], Tensor]
    paint: Callable[[Tensor, Tensor, Tensor], Tensor]
    light: Callable[[Tensor, int, int, int], tuple[Tensor, Tensor]] | None = None

    def inputs(self, original: Tensor, parameters: Tensor, to_inputs: Callable[[Tensor], Tensor]) -> Tensor:
        """Return model inputs by painting and resizing the whole image, which is slow."""
        corners = torch.zeros(len(parameters), 2, dtype=torch.int64)
        return to_inputs(self.paint(original.expand(len(parameters), -1, -1, -1), corners, parameters))


class Resizing(NamedTuple):
    """From which shape to which size images are resized, and how."""

    image: Shape
    target: Size
    how: Interpolation


def plan_light(local: Local, parameters: Tensor, resizing: Resizing, device: torch.device) -> LightPlan:
    """Return the plan for light on images of one shape; plans are cached."""
    # one plan per stream: a stream might read what another one has not transferred yet
    stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
    values = parameters.to(torch.float64).contiguous().numpy()
    return _plan_light(local, values.tobytes(), values.shape[1], resizing, device, stream)


@lru_cache(KEPT)
def _plan_light(
    local: Local, values: bytes, count: int, resizing: Resizing, device: torch.device, stream: int
) -> LightPlan:
    parameters = torch.from_numpy(np.frombuffer(values).reshape(-1, count).copy())
    (channels, *size), target, how = resizing
    assert local.light is not None
    columns, rows = local.light(parameters, *resizing.image)
    top, left, bottom, right = local.boxes(parameters, *resizing.image[1:]).numpy().T
    down, across = (Support.of(side, goal, how) for side, goal in zip(size, target, strict=True))
    y, below = down.nonempty_targets(top, bottom)
    x, beyond = across.nonempty_targets(left, right)
    begin, tall, high, wide = down.first[y], down.last[below - 1] - down.first[y], below - y, beyond - x
    sizes = channels * tall * wide
    windows = np.stack([begin, tall, y, high, x, wide, np.cumsum(sizes) - sizes], 1).astype(np.int64)
    together = np.concatenate([columns.flatten(1).numpy(), rows.numpy(), windows.view(np.float64)], 1)  # one transfer
    there = to_device(torch.from_numpy(together), device)
    return LightPlan(
        there[:, :-7].contiguous(),
        there[:, -7:].contiguous().view(torch.int64),
        (int(tall.max()), int(high.max()), int(wide.max())),
        int(sizes.sum()),
    )


def light_picture(local: Local, parameters: Tensor, image: Shape, box: Box) -> Image.Image:
    """Return the light of one change (P,) on a window (left, top, right, bottom) of an image; small ones are cached."""
    left, top, right, bottom = box
    make = _light_picture if (right - left) * (bottom - top) <= LARGE else _light_picture.__wrapped__
    return make(local, parameters.to(torch.float64).numpy().tobytes(), image, box)


@lru_cache(PICTURES)
def _light_picture(local: Local, values: bytes, image: Shape, box: Box) -> Image.Image:
    left, top, right, bottom = box
    assert local.light is not None
    columns, rows = local.light(torch.from_numpy(np.frombuffer(values).copy())[None], *image)
    light = columns[0, :, top:bottom, None] * rows[0, left:right]
    return to_picture(light.clamp_(max=255).to(torch.uint8).expand(image[0], -1, -1).numpy())
