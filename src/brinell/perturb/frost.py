"""Frost on the window (seed 3): a template laid over the image.

The authors' template is a photograph, which is not ours to give. This one is grown: ferns of ice from the border inwards,
with branches at 60 degrees, as bright as theirs. Your own photograph becomes a property by `use_frost_template`.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import cv2
import numpy as np
import torch
from PIL import Image
from torch import Tensor

from brinell.draws import Draws, key
from brinell.errors import ConfigError
from brinell.perturb.papers import ZHONG_2020
from brinell.perturb.property import PROPERTIES, Property, PropertyFacts, per_image, pixel_property
from brinell.perturb.weather import POINTS

SIDE = 512  # of the grown template
CLEAR, CLEAR_LEAST = 1.0, 0.5  # the image's weight at severities 0 and 1
FROST, FROST_MOST = 0.3, 0.8  # the template's
BRIGHTNESS = 0.5  # root mean square of a template, for (0.3·0.5)² = 2.3e-2, the authors' least mean squared error
_TINT = np.array([0.90, 0.97, 1.0])  # of ice

# images to a template of their size, float32 (C, H, W) of grey levels
Template = Callable[[Tensor], Tensor]


def _weight(severities: Tensor) -> Tensor:
    return FROST + (FROST_MOST - FROST) * severities[:, 0]


_FACTS = PropertyFacts(
    "frost",
    "weather",
    "% frost",
    lambda s, h, w: torch.where(s[:, 0] == 0, 0.0, 100 * _weight(s)),
    points=POINTS,
    source=ZHONG_2020,
)


def _frosted(images: Tensor, severities: Tensor, template: Template) -> Tensor:
    clear = CLEAR + (CLEAR_LEAST - CLEAR) * severities[:, 0]
    ice = template(images) * per_image(_weight(severities), images)
    return images.mul_(per_image(clear, images)).add_(ice)


@pixel_property("frost", _FACTS)
def frost(images: Tensor, severities: Tensor) -> Tensor:
    """(1 - 0.5e)·x + (0.3 + 0.5e)·T: the least frost is strong already."""
    return _frosted(images, severities, _grown())


@pixel_property(
    "frost",
    PropertyFacts(
        "frost", "weather", "% frost", lambda s, h, w: 100 * FROST_MOST * s[:, 0], points=POINTS, source=ZHONG_2020
    ),
    variant="equations",
)
def frost_as_written(images: Tensor, severities: Tensor) -> Tensor:
    """Eq. 11 read as (1 - e·0.5)·x + e·0.8·T.

    As printed, it is e·p·x + e·q·T, and so black without frost; the weights are those of the authors' code at e = 1.
    """
    share = severities[:, 0]
    ice = _grown()(images) * per_image(FROST_MOST * share, images)
    return images.mul_(per_image(1 - (CLEAR - CLEAR_LEAST) * share, images)).add_(ice)


def use_frost_template(path: str | Path) -> Property:
    """Register your own image of frost as `frost:NAME-DIGITS`: the file's name, and some digits of its content.

    White ice on black is meant. It is resized to the images that it is laid over, whatever its shape.
    """
    path = Path(path).expanduser()
    try:
        content = path.read_bytes()
        with Image.open(io.BytesIO(content)) as picture:
            template = _template(picture.convert("RGB"))
    except OSError as error:
        raise ConfigError(f"{path} is no image of frost that can be read ({error.strerror or error})") from error
    variant = f"{path.stem}-{hashlib.blake2b(content, digest_size=3).hexdigest()}"
    name = f"frost:{variant}"
    if name in PROPERTIES:
        return PROPERTIES[name]

    def frost_of_file(images: Tensor, severities: Tensor) -> Tensor:
        return _frosted(images, severities, template)

    pixel_property("frost", _FACTS, variant=variant)(frost_of_file)
    return PROPERTIES[name]


def _template(picture: Image.Image) -> Template:
    @cache
    def fitted(channels: int, height: int, width: int, device: torch.device) -> Tensor:
        resized = np.asarray(picture.convert("L" if channels == 1 else "RGB").resize((width, height)), np.float32)
        return torch.from_numpy(resized).view(height, width, channels).permute(2, 0, 1).contiguous().to(device)

    return lambda images: fitted(*images.shape[1:], images.device)


@cache
def _grown() -> Template:
    return _template(Image.fromarray(grow_frost()))


def grow_frost() -> np.ndarray:
    """The template, uint8 (512, 512, 3): ferns of ice over a haze, dense at the border and sparse in the middle."""
    chance = _Chance()
    stems = _stems(chance, 60)
    twigs = _branches(stems, 0.30, chance)
    needles = _branches(twigs, 0.35, chance)
    layers = []
    for ferns, brightness in ((needles, 100), (twigs, 180), (stems, 255)):
        layer = np.zeros((SIDE, SIDE), np.uint8)
        drawn = (ferns.points * SIDE * 16).round().astype(np.int32)  # in sixteenths of a pixel
        cv2.polylines(layer, list(drawn), False, brightness, 1, cv2.LINE_AA, 4)
        layers.append(layer)
    ice = np.max(layers, 0) / 255
    away = np.abs(np.linspace(-1, 1, SIDE))
    border = np.maximum(away[:, None], away) ** 2
    haze = sum(_cloud(chance, cells) / 3 for cells in (6, 24, 96)) * (0.25 + 0.6 * border)
    light = ice + 0.35 * cv2.GaussianBlur(ice, (0, 0), 2) + 0.5 * cv2.GaussianBlur(ice, (0, 0), 10) + haze
    # as bright as it should be after what is too bright was cut off
    for _ in range(20):
        light *= BRIGHTNESS / np.sqrt((np.clip(light[..., None] * _TINT, 0, 1) ** 2).mean())
    template: np.ndarray = (np.clip(light[..., None] * _TINT, 0, 1) * 255).round().astype(np.uint8)
    return template


class _Chance:
    """Numbers in [0, 1), the same ones every time."""

    def __init__(self) -> None:
        self.draws = Draws.of(key("frost template"), torch.zeros(1, dtype=torch.int64))
        self.purpose = 0

    def uniform(self, count: int) -> np.ndarray:
        self.purpose += 1
        numbers: np.ndarray = self.draws.below(self.purpose, count, 1 << 24)[0].numpy() / 2.0**24
        return numbers


def _cloud(chance: _Chance, cells: int) -> np.ndarray:
    """Smooth patches, so many along a side."""
    coarse = chance.uniform(cells * cells).reshape(cells, cells)
    patches: np.ndarray = cv2.resize(coarse, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC)
    return patches


@dataclass(frozen=True)
class _Ferns:
    """Curved lines: points (lines, points, 2) of x and y from 0 to 1, the way they go at each point, and their length."""

    points: np.ndarray
    heading: np.ndarray
    length: np.ndarray


def _grow(start: np.ndarray, heading: np.ndarray, length: np.ndarray, bend: np.ndarray, count: int) -> _Ferns:
    """Lines of `count` points from where they start, which turn by `bend` in all."""
    headings = heading[:, None] + bend[:, None] * np.linspace(0, 1, count)
    steps = np.stack([np.cos(headings), np.sin(headings)], -1) * (length / (count - 1))[:, None, None]
    return _Ferns(start[:, None] + np.cumsum(steps, 1) - steps[:, :1], headings, length)


def _stems(chance: _Chance, count: int) -> _Ferns:
    """Stems that begin at the border and go inwards, most of them short."""
    side, place = np.arange(count) % 4, chance.uniform(count)
    edge = np.where(side < 2, 0.0, 1.0)
    start = np.where((side % 2 == 0)[:, None], np.stack([place, edge], 1), np.stack([edge, place], 1))
    inwards = np.choose(side, [0.5, 0.0, -0.5, 1.0]) * np.pi
    heading = inwards + (chance.uniform(count) - 0.5) * 1.8
    length = 0.12 + 0.55 * chance.uniform(count) ** 3
    return _grow(start, heading, length, (chance.uniform(count) - 0.5) * 2.5, 40)


def _branches(stems: _Ferns, share: float, chance: _Chance) -> _Ferns:
    """Branches at 60 degrees to both sides, a share of the stem's length, shorter towards its tip."""
    lines, count = stems.heading.shape
    places = np.arange(1, count - 1)
    sides = np.array([-1.0, 1.0])
    start = np.repeat(stems.points[:, places], 2, 1).reshape(-1, 2)
    heading = (stems.heading[:, places, None] + sides * (np.pi / 3)).reshape(-1)
    taper = np.tile(np.repeat(1 - places / count, 2), lines) ** 0.8
    length = np.repeat(stems.length, 2 * len(places)) * share * taper * (0.35 + 0.65 * chance.uniform(len(heading)))
    # they bend back towards the stem's own way
    return _grow(start, heading, length, np.tile(-sides, len(heading) // 2) * 0.4, 10)
