"""Square windows of an image, and the whole image, small, on a black model input (fragile recognition, ICLR 2019).

Parameters of a view are its left, top and side in whole pixels; further ones are ignored. Windows with the same left edge
share the horizontal pass, so a window costs one vertical pass. Weights and rounding are Pillow's, in whole numbers, on
every device.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from brinell.perturb.view import ToInputs, View
from brinell.resizing.resample import BITS, nearest_pixels, pillow_weights, resize
from brinell.types import Interpolation

Fit = Literal["bilinear", "bicubic", "lanczos", "nearest", "pad", "own"]
Make = Callable[[Tensor, int, Tensor], Tensor]  # from an original, a side and corners (T, 2) to model inputs
PARAMETERS = ("left", "top", "side")
CHUNK = 2  # windows per step on a CPU, whose sums stay in the cache


def title_of(view: str, size: str) -> str:
    """Return the name of a view of a size, for people: a share of the shorter side in percent, or pixels."""
    text = size.replace("px", " px") if size.endswith("px") else f"{100 * float(size or 1):g} %"
    return {"windows": f"{text} windows", "location": f"{text} on black", "minimal": "minimal images"}[view]


def window_view(size: str, fit: Fit, height: int, width: int) -> View:
    """Return the view of windows as model inputs: resized with one of Pillow's filters, unscaled in the centre of black
    ("pad"), or preprocessed by the model as if each window were an image file ("own").
    """

    def look(original: Tensor, parameters: Tensor, to_inputs: ToInputs) -> Tensor:
        def make(original: Tensor, side: int, corners: Tensor) -> Tensor:
            if fit == "own":
                return to_inputs(_cut(original, side, corners))
            return cut_windows(original, side, corners, height, width, fit)

        return _group_by_side(make, original, parameters)

    frame = None if fit == "own" else partial(_frame, height, width, fit)
    return View("windows", size, look, title_of("windows", size), PARAMETERS, "pixels", same_scene=False, frame=frame)


def location_view(size: str, height: int, width: int) -> View:
    """Return the view of the whole image, scaled down to the side (bilinear), on a black model input."""

    def look(original: Tensor, parameters: Tensor, _: ToInputs) -> Tensor:
        return _group_by_side(partial(_place_on_black, height, width), original, parameters)

    return View("location", size, look, title_of("location", size), PARAMETERS, "pixels", same_scene=False)


def _group_by_side(make: Make, original: Tensor, parameters: Tensor) -> Tensor:
    """Make views of several sides, those of one side together."""
    whole = parameters.to(torch.int64)
    sides, which = torch.unique(whole[:, 2], return_inverse=True)
    if len(sides) == 1:
        return make(original, int(sides), whole[:, :2])
    groups = [(which == number).nonzero()[:, 0] for number in range(len(sides))]
    made = torch.cat([make(original, int(side), whole[rows, :2]) for side, rows in zip(sides, groups, strict=True)])
    return made[torch.cat(groups).argsort().to(made.device)]


def cut_windows(original: Tensor, side: int, corners: Tensor, height: int, width: int, fit: Fit = "bilinear") -> Tensor:
    """Return windows of one side of a uint8 image (C, H, W) as (T, C, height, width); `corners` are their lefts and tops,
    int64 (T, 2), on the host.
    """
    if fit == "pad":
        left, top = (width - side) // 2, (height - side) // 2
        return pad(_cut(original, side, corners), (left, width - side - left, top, height - side - top))
    if fit == "nearest":
        rows, columns = (nearest_pixels(side, target) for target in (height, width))
        down = (corners[:, 1:] + rows).to(original.device)
        across = (corners[:, :1] + columns).to(original.device)
        return original[:, down[:, :, None], across[:, None, :]].transpose(0, 1).contiguous()
    assert fit != "own"
    return _resize_windows(original, side, corners, height, width, fit)


def _cut(original: Tensor, side: int, corners: Tensor) -> Tensor:
    lefts, tops = corners.to(original.device).unbind(1)
    return original.unfold(1, side, 1).unfold(2, side, 1)[:, tops, lefts].transpose(0, 1).contiguous()


def _resize_windows(original: Tensor, side: int, corners: Tensor, height: int, width: int, how: Interpolation) -> Tensor:
    """Resize horizontally once per left edge, over the rows that are needed, then vertically per window."""
    device, channels = original.device, len(original)
    lefts, which = torch.unique(corners[:, 0], return_inverse=True)
    first, last = int(corners[:, 1].min()), int(corners[:, 1].max()) + side
    begins = which * channels * (last - first) + corners[:, 1] - first
    lefts, begins = (each.to(device, non_blocking=True) for each in (lefts, begins))  # without waiting for the device
    positions, whole = _taps(side, width, how, device)
    across = (lefts[None, :, None] + positions[:, None, :]).flatten(1)
    strips = _weighted_sums(original[:, first:last], 2, across, whole.repeat(1, len(lefts)), how)
    strips = strips.view(channels, last - first, len(lefts), width).permute(2, 0, 1, 3).reshape(-1, width)
    positions, whole = _taps(side, height, how, device)
    begins = begins[:, None] + torch.arange(channels, device=device) * (last - first)  # (T, C)
    chunk = CHUNK if device.type == "cpu" else len(corners)
    made = []
    for part in begins.split(chunk):
        down = (part[:, :, None] + positions[:, None, None, :]).flatten(1)
        sums = _weighted_sums(strips, 0, down, whole.repeat(1, part.numel()), how)
        made.append(sums.view(len(part), channels, height, width))
    return made[0] if len(made) == 1 else torch.cat(made)


def _weighted_sums(values: Tensor, axis: int, positions: Tensor, whole: Tensor, how: Interpolation) -> Tensor:
    """Return sums of bytes at positions (taps, K) along an axis, with weights (taps, K), rounded to bytes, half up."""
    shape = [1] * values.ndim
    shape[axis] = -1
    total = values.new_full((), 1 << (BITS - 1), dtype=torch.int32)
    for position, weight in zip(positions, whole, strict=True):
        total = torch.mul(values.index_select(axis, position), weight.view(shape)).add_(total)
    total.bitwise_right_shift_(BITS)
    if how != "bilinear":  # bilinear weights are never negative
        total.clamp_(0, 255)
    return total.to(torch.uint8)


@lru_cache(64)
def _taps(source: int, target: int, how: Interpolation, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the source positions and the weights of each target pixel, (taps, target) each."""
    dense = pillow_weights(source, target, how)
    used = (dense != 0).to(torch.uint8)
    first = used.argmax(1)
    count = int((source - used.flip(1).argmax(1) - first).max())
    positions = first.clamp(max=source - count) + torch.arange(count)[:, None]
    with torch.inference_mode(False):
        return positions.to(device), dense.gather(1, positions.T).T.to(torch.int32).contiguous().to(device)


def _place_on_black(height: int, width: int, original: Tensor, side: int, corners: Tensor) -> Tensor:
    small = resize(original[None], side, side)[0]
    across, down = width - side, height - side
    wide = pad(small, (across, across, down, down))  # every model input is a window of this
    lefts, tops = corners.to(original.device).unbind(1)
    return wide.unfold(1, height, 1).unfold(2, width, 1)[:, down - tops, across - lefts].transpose(0, 1).contiguous()


def _frame(height: int, width: int, fit: Fit, parameters: Tensor) -> Tensor:
    """Return the matrices from pixel corners of the original to the model input, float64 (T, 3, 3)."""
    left, top, side = parameters[:, :3].unbind(1)
    found = torch.zeros(len(parameters), 3, 3, dtype=torch.float64)
    found[:, 2, 2] = 1
    if fit == "pad":
        found[:, 0, 0] = found[:, 1, 1] = 1
        found[:, 0, 2] = (width - side).div(2, rounding_mode="floor") - left
        found[:, 1, 2] = (height - side).div(2, rounding_mode="floor") - top
        return found
    for axis, begin, target in ((0, left, width), (1, top, height)):
        found[:, axis, axis] = target / side
        found[:, axis, 2] = -begin * target / side
    return found
