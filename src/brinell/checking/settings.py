"""The usual ways in which images are given to networks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

from brinell.models.decoding_check import FORMATS, UNITS
from brinell.models.model import Model
from brinell.models.options import CROP_SHARE, LETTERBOX_FILL
from brinell.models.preprocess import Preprocess

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
#: (mean, std) of pixel values in [0, 1], by what networks call it
NORMALISATIONS: dict[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "values in [0, 1]": ((0.0,), (1.0,)),
    "ImageNet's mean and std": (IMAGENET_MEAN, IMAGENET_STD),
    "values in [-1, 1]": ((0.5,), (0.5,)),
    "values in 0..255": ((0.0,), (0.00392157,)),
    "0..255 less ImageNet's mean": (IMAGENET_MEAN, (0.00392157,)),
    "CLIP's mean and std": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
}
CLOSE = 1e-3  # difference below which two normalisations are one


@dataclass(frozen=True)
class Setting:
    """One way to show images to a model and to read its boxes: a description, and the options that ask for it."""

    title: str
    options: dict[str, str]
    preprocess: Preprocess
    boxes: tuple[str, str] | None = None  # format and units; None: as the model's options say


def as_given(model: Model, replaced: Mapping[str, object]) -> Setting:
    """Return the setting that a model was opened with; options that it can't be run with were `replaced`."""
    instead = ", ".join(f"{key}={value}" for key, value in replaced.items())
    return Setting(f"as given, with {instead}" if instead else "as given", {}, model.preprocess)


def colour_settings(model: Model, setting: Setting) -> Iterator[Setting]:
    """Yield other normalisations and orders of channels. A model that takes whole grey levels is given them as they are."""
    own = setting.preprocess
    usable = {key: each for key, each in NORMALISATIONS.items() if own.channels == 3 or len(each[0]) == 1}
    scales = {"": (own.mean, own.std)} if model.whole_only else {"": (own.mean, own.std), **usable}
    for (title, (mean, std)), bgr in product(scales.items(), (False, True) if own.channels == 3 else (own.bgr,)):
        changed = replace(own, mean=mean, std=std, bgr=bgr)
        if not (title and _same_scale(changed, own)) and changed != own:
            options = {"mean": _text(mean), "std": _text(std)} if title else {}
            options |= {} if bgr == own.bgr else {"bgr": str(bgr).lower()}
            order = "BGR" if bgr else "RGB"
            named = [title] if title else []
            yield Setting(", ".join([*named, order] if own.channels == 3 else named), options, changed)


def resize_settings(model: Model, setting: Setting) -> Iterator[Setting]:
    """Yield other ways to bring images to the size of the model input."""
    own = setting.preprocess
    short_side = round(max(own.height, own.width) / CROP_SHARE)
    ways = {
        "stretch": replace(own, short_side=None, fill=None),
        "crop": replace(own, short_side=own.short_side or short_side, fill=None),
        "letterbox": replace(own, short_side=None, fill=LETTERBOX_FILL if own.fill is None else own.fill),
    }
    for way, changed in ways.items():
        if changed != own:
            yield Setting(f"{setting.title}, {way}", {**setting.options, "resize": way}, changed, setting.boxes)


def with_boxes(model: Model, best: Setting, settings: Iterable[Setting]) -> Iterator[Setting]:
    """Yield settings, and for a detector each of them, and the best one so far, with other formats and units of boxes.

    They are tried together: while boxes are read wrongly, no normalisation finds more objects than another.
    """
    if model.detector is not None:
        yield from box_settings(model, best)
    for setting in settings:
        yield setting
        if model.detector is not None:
            yield from box_settings(model, setting)


def box_settings(model: Model, setting: Setting) -> Iterator[Setting]:
    """Yield other formats and units of a detector's boxes, unless a setting has its own."""
    assert model.detector is not None
    if setting.boxes is not None:
        return
    own = model.detector.decoding.box_format, model.detector.decoding.box_units
    for boxes in product(FORMATS, UNITS):
        if boxes != own:
            keys = zip(("box_format", "box_units"), boxes, own, strict=True)
            changed = {key: new for key, new, old in keys if new != old}
            title = f"{setting.title}, boxes {boxes[0]} {'in pixels' if boxes[1] == 'pixels' else 'relative'}"
            yield Setting(title, {**setting.options, **changed}, setting.preprocess, boxes)


def _same_scale(one: Preprocess, other: Preprocess) -> bool:
    def spread(values: tuple[float, ...]) -> tuple[float, ...]:
        return values * (3 // len(values))

    pairs = zip(spread(one.mean) + spread(one.std), spread(other.mean) + spread(other.std), strict=True)
    return all(abs(a - b) < CLOSE for a, b in pairs)


def _text(values: tuple[float, ...]) -> str:
    return ",".join(f"{value:g}" for value in values)
