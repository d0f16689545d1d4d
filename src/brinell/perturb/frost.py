"""Frost (DSN 2020, Zhong, Hu and Chen): a template of ice laid over the image.

The authors' template is a photograph that we may not redistribute. This one is generated: ferns of ice that grow from the
border inwards with branches at 60 degrees, as bright as theirs. `use_frost_template` registers a photograph of your own.
"""

from __future__ import annotations

import hashlib
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
from brinell.perturb.levels import blend
from brinell.perturb.papers import ZHONG_2020
from brinell.perturb.property import PROPERTIES, Property, PropertyFacts, pixel_property
from brinell.perturb.weather import POINTS
from brinell.pictures import open_picture

SIDE = 512  # of the generated template, pixels
CLEAR, CLEAR_LEAST = 1.0, 0.5  # weight of the image at severities 0 and 1
FROST, FROST_MOST = 0.3, 0.8  # weight of the template at severities 0 and 1
BRIGHTNESS = 0.5  # RMS of the template: (0.3·0.5)² = 2.3e-2 is the smallest mean squared error in the paper
DSN_2020 = "dsn2020"
_TINT = np.array([0.90, 0.97, 1.0])  # colour of ice

# returns a template of the images' size, float32 (C, H, W) in grey levels
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


def _add_frost(images: Tensor, severities: Tensor, template: Template) -> Tensor:
    clear = CLEAR + (CLEAR_LEAST - CLEAR) * severities[:, 0]
    return blend(images, clear, _weight(severities), template(images))


@pixel_property("frost", _FACTS)
def frost(images: Tensor, severities: Tensor) -> Tensor:
    """Overlay a template T of frost: (1 - 0.5e)·x + (0.3 + 0.5e)·T, which is strong even at the lowest severity."""
    return _add_frost(images, severities, _default_template())


_FROM_NOTHING = PropertyFacts(
    "frost", "weather", "% frost", lambda s, h, w: 100 * FROST_MOST * s[:, 0], points=POINTS, source=ZHONG_2020
)


def _add_frost_from_nothing(images: Tensor, severities: Tensor, template: Template) -> Tensor:
    share = severities[:, 0]
    return blend(images, 1 - (CLEAR - CLEAR_LEAST) * share, FROST_MOST * share, template(images))


@pixel_property("frost", _FROM_NOTHING, variant="standard")
def frost_from_nothing(images: Tensor, severities: Tensor) -> Tensor:
    """Overlay a template T of frost, from nothing on: (1 - 0.5e)·x + 0.8e·T."""
    return _add_frost_from_nothing(images, severities, _default_template())


@pixel_property("frost", _FROM_NOTHING, variant="equations")
def frost_as_written(images: Tensor, severities: Tensor) -> Tensor:
    """Overlay a template T of frost: Eq. 11, taken as (1 - 0.5e)·x + 0.8e·T.

    The printed equation, e·p·x + e·q·T, gives a black image without frost; the weights are those of the authors' code at
    e = 1.
    """
    return _add_frost_from_nothing(images, severities, _default_template())


def use_frost_template(path: str | Path, variant: str = DSN_2020) -> Property:
    """Register an image file as the property `frost:NAME-DIGITS`: the file's name and digits of a hash of its content.

    Its weights are those of a variant; other variants than the authors' follow in the name: `frost:NAME-DIGITS-VARIANT`.
    The image should show white ice on black; it is resized to each image that it is laid over, whatever its shape.
    """
    path = Path(path).expanduser()
    try:
        content = path.read_bytes()
        with open_picture(content) as picture:
            template = _template(picture.convert("RGB"))
    except OSError as error:
        raise ConfigError(f"can't read {path} as an image of frost: {error.strerror or error}") from error
    facts, add = (_FACTS, _add_frost) if variant == DSN_2020 else (_FROM_NOTHING, _add_frost_from_nothing)
    own = f"{path.stem}-{hashlib.blake2b(content, digest_size=3).hexdigest()}"
    own = own if variant == DSN_2020 else f"{own}-{variant}"
    if f"frost:{own}" in PROPERTIES:
        return PROPERTIES[f"frost:{own}"]

    def add_frost_of_file(images: Tensor, severities: Tensor) -> Tensor:
        """Overlay your own template of frost."""
        return add(images, severities, template)

    pixel_property("frost", facts, variant=own)(add_frost_of_file)
    return PROPERTIES[f"frost:{own}"]


def _template(picture: Image.Image) -> Template:
    @cache
    def fitted(channels: int, height: int, width: int, device: torch.device) -> Tensor:
        resized = np.asarray(picture.convert("L" if channels == 1 else "RGB").resize((width, height)), np.float32)
        return torch.from_numpy(resized).view(height, width, channels).permute(2, 0, 1).contiguous().to(device)

    return lambda images: fitted(*images.shape[1:], images.device)


@cache
def _default_template() -> Template:
    return _template(Image.fromarray(grow_frost()))


def grow_frost(number: int = 0) -> np.ndarray:
    """Generate the template of a number, uint8 (512, 512, 3): ferns of ice over a haze, dense at the border, sparse in the
    middle.
    """
    chance = _Chance(number)
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
    # repeated, because clipping lowers the brightness again
    for _ in range(20):
        light *= BRIGHTNESS / np.sqrt((np.clip(light[..., None] * _TINT, 0, 1) ** 2).mean())
    template: np.ndarray = (np.clip(light[..., None] * _TINT, 0, 1) * 255).round().astype(np.uint8)
    return template


class _Chance:
    """A fixed sequence of numbers in [0, 1)."""

    def __init__(self, number: int) -> None:
        self.draws = Draws.of(key("frost template"), torch.full((1,), number))
        self.purpose = 0

    def uniform(self, count: int) -> np.ndarray:
        self.purpose += 1
        numbers: np.ndarray = self.draws.below(self.purpose, count, 1 << 24)[0].numpy() / 2.0**24
        return numbers


def _cloud(chance: _Chance, cells: int) -> np.ndarray:
    """Return smooth random patches, `cells` along a side."""
    coarse = chance.uniform(cells * cells).reshape(cells, cells)
    patches: np.ndarray = cv2.resize(coarse, (SIDE, SIDE), interpolation=cv2.INTER_CUBIC)
    return patches


@dataclass(frozen=True)
class _Ferns:
    """Curved lines: points (lines, points, 2) in [0, 1]², the heading at each point in radians, and their lengths."""

    points: np.ndarray
    heading: np.ndarray
    length: np.ndarray


def _grow(start: np.ndarray, heading: np.ndarray, length: np.ndarray, bend: np.ndarray, count: int) -> _Ferns:
    """Grow lines of `count` points that turn by `bend` from start to end."""
    headings = heading[:, None] + bend[:, None] * np.linspace(0, 1, count)
    steps = np.stack([np.cos(headings), np.sin(headings)], -1) * (length / (count - 1))[:, None, None]
    return _Ferns(start[:, None] + np.cumsum(steps, 1) - steps[:, :1], headings, length)


def _stems(chance: _Chance, count: int) -> _Ferns:
    """Grow stems from the border inwards, most of them short."""
    side, position = np.arange(count) % 4, chance.uniform(count)
    edge = np.where(side < 2, 0.0, 1.0)
    start = np.where((side % 2 == 0)[:, None], np.stack([position, edge], 1), np.stack([edge, position], 1))
    inwards = np.choose(side, [0.5, 0.0, -0.5, 1.0]) * np.pi
    heading = inwards + (chance.uniform(count) - 0.5) * 1.8
    length = 0.12 + 0.55 * chance.uniform(count) ** 3
    return _grow(start, heading, length, (chance.uniform(count) - 0.5) * 2.5, 40)


def _branches(stems: _Ferns, share: float, chance: _Chance) -> _Ferns:
    """Grow branches at 60 degrees to both sides, up to a share of the stem's length, shorter towards its tip."""
    lines, count = stems.heading.shape
    nodes = np.arange(1, count - 1)
    sides = np.array([-1.0, 1.0])
    start = np.repeat(stems.points[:, nodes], 2, 1).reshape(-1, 2)
    heading = (stems.heading[:, nodes, None] + sides * (np.pi / 3)).reshape(-1)
    taper = np.tile(np.repeat(1 - nodes / count, 2), lines) ** 0.8
    length = np.repeat(stems.length, 2 * len(nodes)) * share * taper * (0.35 + 0.65 * chance.uniform(len(heading)))
    # branches bend back towards the heading of the stem
    return _grow(start, heading, length, np.tile(-sides, len(heading) // 2) * 0.4, 10)
