"""Preprocessing as libraries describe it."""

from __future__ import annotations

from typing import Any

from brinell.models.preprocess import Preprocess
from brinell.types import Interpolation


def read_processor(processor: Any) -> Preprocess:
    """Return the preprocessing of an image processor."""
    size = dict(processor.size)
    crop = dict(getattr(processor, "crop_size", None) or {}) if getattr(processor, "do_center_crop", False) else {}
    target = crop or size
    short_side = size.get("shortest_edge")
    height, width = (int(target.get(side) or short_side or 224) for side in ("height", "width"))
    if not crop and short_side is not None and getattr(processor, "crop_pct", None):
        short_side = int(short_side / processor.crop_pct)  # ConvNeXt's rule
    rescale = 255 * processor.rescale_factor if getattr(processor, "do_rescale", True) else 255.0
    mean, std = (processor.image_mean, processor.image_std) if processor.do_normalize else ((0.0,), (1.0,))
    return Preprocess(
        height=height,
        width=width,
        short_side=short_side or (max(size["height"], height, width) if crop and "height" in size else None),
        interpolation=read_interpolation(int(processor.resample)),
        mean=tuple(value / rescale for value in mean),
        std=tuple(value / rescale for value in std),
    )


def read_interpolation(value: Any) -> Interpolation:
    """Return an interpolation by a library's name or Pillow's number for it."""
    numbers: dict[int, Interpolation] = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}
    if isinstance(value, int):
        return numbers.get(value, "bicubic")
    return value if value in numbers.values() else "bicubic"
