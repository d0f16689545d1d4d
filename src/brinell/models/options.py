"""The user's options combined with what is known about a model: its preprocessing and its classes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from brinell.classes import Classes
from brinell.config.model import ModelOptions
from brinell.errors import ConfigError
from brinell.models.imagenet import imagenet_classes
from brinell.models.preprocess import Preprocess

LETTERBOX_FILL = 114  # grey level of the bars, as in YOLO
CROP_SHARE = 0.875  # side of the centre crop as a share of the resized image, as is common for ImageNet


def select_preprocess(options: ModelOptions, known: Preprocess) -> Preprocess:
    """Return what is known about a model's preprocessing, overridden by the user's options."""
    height, width = _sides(options.size) if options.size else (known.height, known.width)
    channels = options.channels or known.channels
    short_side = known.short_side
    if options.short_side is not None:
        short_side = options.short_side
    elif options.resize in ("stretch", "letterbox"):
        short_side = None
    elif options.resize == "crop" and (short_side is None or options.size is not None):
        short_side = round(max(height, width) / CROP_SHARE)
    if short_side is not None and short_side < max(height, width):
        raise ConfigError(
            f"short_side is {short_side}, but a crop of {height}x{width} needs at least {max(height, width)}; increase it"
        )
    fill = known.fill if options.fill is None else options.fill
    if options.resize == "letterbox" and fill is None:
        fill = LETTERBOX_FILL
    elif options.resize in ("stretch", "crop") or short_side is not None:
        fill = None
    bgr = known.bgr if options.bgr is None else options.bgr
    if bgr and channels != 3:
        raise ConfigError(f"bgr needs three channels, and {options.source} has {channels}")
    return replace(
        known,
        fill=fill,
        bgr=bgr,
        height=height,
        width=width,
        channels=channels,
        short_side=short_side,
        interpolation=options.interpolation or known.interpolation,
        mean=_per_channel("mean", options.mean or known.mean, channels),
        std=_per_channel("std", options.std or known.std, channels),
    )


def select_classes(options: ModelOptions, known: Classes | None) -> Classes | None:
    """Return the user's class list, or the one that is known for the model."""
    if options.classes is None:
        return known
    if options.class_count is not None:  # classes without names, unless they are known
        return known if known is not None and len(known.names) == options.class_count else None
    if options.classes == "imagenet":
        return imagenet_classes()
    try:
        lines = Path(options.classes).expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the class list {options.classes!r} can't be read as UTF-8 text: {error}") from error
    names = tuple(line for line in lines if line.strip())
    if not names:
        raise ConfigError(f"the class list {options.classes!r} is empty; give a text file with one class name per line")
    return Classes(names)


def _sides(size: tuple[int, ...]) -> tuple[int, int]:
    if len(size) > 2:
        raise ConfigError(f"size should be one side or height,width, got {','.join(map(str, size))}")
    return size[0], size[-1]


def _per_channel(name: str, values: tuple[float, ...], channels: int) -> tuple[float, ...]:
    if len(values) not in (1, channels):
        raise ConfigError(f"{name} should be one number, or one for each of the {channels} channels, got {values}")
    return values
