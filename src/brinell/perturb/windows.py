"""Views of parts of an image: square windows of it, and the whole of it, small, somewhere on a black model input.

Parameters of a view are its left, its top and its side, in whole pixels; further ones are not looked at. All windows of a
column share the pass across, so that a window costs one weighted sum down; weights and rounding are Pillow's, in whole
numbers, on every device.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from brinell.perturb.view import ToInputs, View
from brinell.resizing.resample import BITS, Interpolation, nearest_pixels, pillow_weights, resize

Fit = Literal["bilinear", "bicubic", "lanczos", "nearest", "pad", "own"]
Make = Callable[[Tensor, int, Tensor], Tensor]  # an original, a side, and corners (T, 2) to inputs
PARAMETERS = ("left", "top", "side")
CHUNK = 2  # windows that a core works on at once: their sums stay in its cache


def title_of(view: str, size: str) -> str:
    """Return the name of a view of a size, for people."""
    text = size.replace("px", " px") if size.endswith("px") else f"P = {size}"
    return {"windows": text, "location": f"on black ({text})", "minimal": "minimal images"}[view]


def window_view(size: str, fit: Fit, height: int, width: int) -> View:
    """Windows as inputs of a height and width: resized as Pillow does; with "pad" as they are, in the middle of black; or
    brought there the model's "own" way, as if each were a picture of its own.
    """

    def look(original: Tensor, parameters: Tensor, to_inputs: ToInputs) -> Tensor:
        def make(original: Tensor, side: int, corners: Tensor) -> Tensor:
            if fit == "own":
                return to_inputs(_cut(original, side, corners))
            return cut_windows(original, side, corners, height, width, fit)

        return _side_by_side(make, original, parameters)

    frame = None if fit == "own" else partial(_frame, height, width, fit)
    return View("windows", size, look, title_of("windows", size), PARAMETERS, "pixels", compares=False, frame=frame)


def location_view(size: str, height: int, width: int) -> View:
    """The whole image, made as small as the side (bilinear), on a black model input of a height and width."""

    def look(original: Tensor, parameters: Tensor, _: ToInputs) -> Tensor:
        return _side_by_side(partial(_located, height, width), original, parameters)

    return View("location", size, look, title_of("location", size), PARAMETERS, "pixels", compares=False)


def _side_by_side(make: Make, original: Tensor, parameters: Tensor) -> Tensor:
    """Views of several sides, those of one side together."""
    whole = parameters.to(torch.int64)
    sides, which = torch.unique(whole[:, 2], return_inverse=True)
    if len(sides) == 1:
        return make(original, int(sides), whole[:, :2])
    groups = [(which == place).nonzero()[:, 0] for place in range(len(sides))]
    made = torch.cat([make(original, int(side), whole[rows, :2]) for side, rows in zip(sides, groups, strict=True)])
    return made[torch.cat(groups).argsort().to(made.device)]


def cut_windows(original: Tensor, side: int, corners: Tensor, height: int, width: int, fit: Fit = "bilinear") -> Tensor:
    """Windows (T, C, height, width) of one side of a uint8 image (C, H, W); `corners` are lefts and tops, int64 (T, 2), on
    the host.
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
    return _resized(original, side, corners, height, width, fit)


def _cut(original: Tensor, side: int, corners: Tensor) -> Tensor:
    lefts, tops = corners.to(original.device).unbind(1)
    return original.unfold(1, side, 1).unfold(2, side, 1)[:, tops, lefts].transpose(0, 1).contiguous()


def _resized(original: Tensor, side: int, corners: Tensor, height: int, width: int, how: Interpolation) -> Tensor:
    """Across once for each left, over the rows that are needed; then down for each window."""
    device, channels = original.device, len(original)
    lefts, which = torch.unique(corners[:, 0], return_inverse=True)
    first, last = int(corners[:, 1].min()), int(corners[:, 1].max()) + side
    begins = which * channels * (last - first) + corners[:, 1] - first
    lefts, begins = (each.to(device, non_blocking=True) for each in (lefts, begins))  # at once, and nothing is waited for
    places, whole = _taps(side, width, how, device)
    across = (lefts[None, :, None] + places[:, None, :]).flatten(1)
    strips = _weighted(original[:, first:last], 2, across, whole.repeat(1, len(lefts)), how)
    strips = strips.view(channels, last - first, len(lefts), width).permute(2, 0, 1, 3).reshape(-1, width)
    places, whole = _taps(side, height, how, device)
    begins = begins[:, None] + torch.arange(channels, device=device) * (last - first)  # (T, C)
    chunk = CHUNK if device.type == "cpu" else len(corners)
    made = []
    for part in begins.split(chunk):
        down = (part[:, :, None] + places[:, None, None, :]).flatten(1)
        sums = _weighted(strips, 0, down, whole.repeat(1, part.numel()), how)
        made.append(sums.view(len(part), channels, height, width))
    return made[0] if len(made) == 1 else torch.cat(made)


def _weighted(values: Tensor, axis: int, places: Tensor, whole: Tensor, how: Interpolation) -> Tensor:
    """Sums of bytes at places (taps, K) along an axis, with weights (taps, K), rounded to bytes, half up."""
    shape = [1] * values.ndim
    shape[axis] = -1
    total = values.new_full((), 1 << (BITS - 1), dtype=torch.int32)
    for place, weight in zip(places, whole, strict=True):
        total = torch.mul(values.index_select(axis, place), weight.view(shape)).add_(total)
    total.bitwise_right_shift_(BITS)
    if how != "bilinear":  # whose weights are all positive
        total.clamp_(0, 255)
    return total.to(torch.uint8)


@lru_cache(64)
def _taps(source: int, target: int, how: Interpolation, device: torch.device) -> tuple[Tensor, Tensor]:
    """Where each of the target's pixels takes from, and with which weights: (taps, target) each."""
    dense = pillow_weights(source, target, how)
    used = (dense != 0).to(torch.uint8)
    first = used.argmax(1)
    count = int((source - used.flip(1).argmax(1) - first).max())
    places = first.clamp(max=source - count) + torch.arange(count)[:, None]
    with torch.inference_mode(False):
        return places.to(device), dense.gather(1, places.T).T.to(torch.int32).contiguous().to(device)


def _located(height: int, width: int, original: Tensor, side: int, corners: Tensor) -> Tensor:
    small = resize(original[None], side, side)[0]
    across, down = width - side, height - side
    wide = pad(small, (across, across, down, down))  # a model input is what is seen of this through a frame
    lefts, tops = corners.to(original.device).unbind(1)
    return wide.unfold(1, height, 1).unfold(2, width, 1)[:, down - tops, across - lefts].transpose(0, 1).contiguous()


def _frame(height: int, width: int, fit: Fit, parameters: Tensor) -> Tensor:
    """Where the corners of the original's pixels come to lie on the model input, float64 (T, 3, 3)."""
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
